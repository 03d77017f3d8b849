"""What the utility benchmark learns: four public datasets, their fixed features, and how silos share them.

A seed fixes who is held out and who is where; sampling and noise come from the operating system. Settings
were chosen on these public data, once for each dataset: that is outside the accounted ε, and said.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from privacy.fixed_features import OrientedGradients, Scattering
from privacy.ids import PartyId, SiloId
from privacy.measures import auc
from privacy.plan import ModelTerms
from privacy.schema import DataSchema
from sealsum.demo.job import heart_schema
from sealsum.demo.patients import HOSPITALS, Table, patients_of
from sealsum.demo.split import split_patients
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.features import catalogue, scattering
from silo_agent.features.catalogue import fixed_features
from silo_agent.models.adapters import ADAPTERS, predict_scores
from silo_agent.models.layouts import model_terms, outputs_for

SILOS = 4
HELD_OUT = 0.2


@dataclass(frozen=True)
class Recipe:
    """Public settings of a dataset's jobs."""

    sample_rate: float
    steps: int
    clip: float
    rate: Callable[[float], float]
    """Learning rate at a central ε; who adds K times the noise variance takes the rate of ε/√K."""
    plain_rate: float
    """Without DP."""
    plain_steps: int
    plain_batch: int | None = None
    """Records a step without DP; all of them where it is left out."""
    local_steps: int = 5
    """Of ``dp_fedavg``, a round."""


@dataclass(frozen=True)
class Problem:
    """One dataset, split by one seed."""

    name: str
    metric: str
    recipe: Recipe
    model: ModelTerms
    train: Records = field(repr=False)
    test: Records = field(repr=False)
    splits: dict[str, list[NDArray[np.intp]]] = field(repr=False)
    """Rows of ``train`` that each silo holds."""

    def silos(self, split: str) -> dict[SiloId, Records]:
        """Each silo's records."""
        return {
            SiloId(PartyId(f"silo-{number}")): rows(self.train, chosen)
            for number, chosen in enumerate(self.splits[split])
        }

    def score(self, vector: NDArray[np.float32]) -> float:
        """Percent right, or 100 · AUC, of a model on the held-out records."""
        scores = predict_scores(ADAPTERS[self.model.adapter], self.model, vector, self.test.features)
        if self.metric == "AUC":
            return 100 * auc(scores, self.test.labels)
        guessed = (scores > 0) if scores.ndim == 1 else scores.argmax(1)
        return 100 * float(np.mean(guessed == self.test.labels))


def digits(seed: int) -> Problem:
    """8 × 8 digits of 1,797 images (Alpaydin, Kaynak 1998): 128 oriented gradients, linear."""
    bunch = load_digits()
    pixels = (bunch.data / 8.0 - 1.0).astype(np.float32)
    features = fixed_features(OrientedGradients(rows=8, columns=8), pixels)
    recipe = Recipe(
        sample_rate=1.0,
        steps=60,
        clip=1.0,
        rate=lambda epsilon: min(2.5 * epsilon**0.9, 12.0),
        plain_rate=3.0,
        plain_steps=200,
    )
    return _even("digits", recipe, Records(features, bunch.target.astype(np.float32), classes=10), seed)


def breast_cancer(seed: int) -> Problem:
    """569 biopsies (Wolberg, Street, Mangasarian 1995): 30 numbers by documented ranges, linear."""
    bunch = load_breast_cancer()
    low, high = documented_ranges(bunch.DESCR)
    # The lower half of each range, where nearly all lie; one vector length for all.
    scaled = 2 * np.clip((bunch.data - low) / (0.5 * (high - low)), 0, 1) - 1
    features = 4 * scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    recipe = Recipe(
        sample_rate=1.0,
        steps=40,
        clip=1.0,
        rate=lambda epsilon: min(1.5 * epsilon**0.7, 6.0),
        plain_rate=2.0,
        plain_steps=400,
    )
    records = Records(features.astype(np.float32), bunch.target.astype(np.float32))
    return _even("breast cancer", recipe, records, seed)


def heart(seed: int) -> Problem:
    """The demo's 920 patients of four hospitals: 33 coordinates by public ranges, linear; a third scored."""
    schema = heart_schema()
    training: list[Records] = []
    held_out: list[Records] = []
    for hospital in HOSPITALS:
        split = split_patients(hospital, patients_of(hospital), seed)
        training.append(_read(split.training, schema))
        held_out.append(_read(split.held_out, schema))
    recipe = Recipe(
        sample_rate=1.0,
        steps=40,
        clip=1.0,
        rate=lambda epsilon: min(1.0 * epsilon**0.7, 4.0),
        plain_rate=1.0,
        plain_steps=400,
    )
    model = model_terms("logistic", schema.width)
    everyone = _joined(training)
    ends = np.cumsum([len(records) for records in training])
    splits = _splits(everyone, seed) | {"natural": np.split(np.arange(ends[-1]), ends[:-1])}
    return Problem("heart", "AUC", recipe, model, everyone, _joined(held_out), splits)


def mnist(seed: int) -> Problem:
    """60,000 + 10,000 digits: 81 scattering maps of 7 × 7, linear. SEALSUM_DATA names the file's folder."""
    train, test = (_mnist_part(part, _scattering_of) for part in ("train", "test"))
    recipe = Recipe(
        sample_rate=4096 / 60000,
        steps=292,
        clip=1.0,
        rate=lambda epsilon: min(15.0 * epsilon**0.65, 40.0),
        plain_rate=2.0,
        plain_steps=2340,
        plain_batch=256,
    )
    model = model_terms("logistic", train.features.shape[1], (), 10)
    return Problem("MNIST", "accuracy", recipe, model, train, test, _splits(train, seed))


def mnist_cnn(seed: int) -> Problem:
    """The same digits as pixels in a small network of 26,010 parameters (Papernot et al. 2021)."""
    train, test = (_mnist_part(part, _pixels_of) for part in ("train", "test"))
    recipe = Recipe(
        sample_rate=4096 / 60000,
        steps=300,
        clip=1.0,
        rate=lambda epsilon: 2.0,
        plain_rate=0.1,
        plain_steps=100,
    )
    model = model_terms("cnn", train.features.shape[1], (16, 32, 32), 10)
    return Problem("MNIST", "accuracy", recipe, model, train, test, _splits(train, seed))


def _mnist_part(part: str, features: Callable[[NDArray[np.uint8]], NDArray[np.float32]]) -> Records:
    with np.load(Path(os.environ["SEALSUM_DATA"]) / "mnist" / "mnist.npz", allow_pickle=False) as arrays:
        labels = arrays[f"{part}_labels"].astype(np.float32)
        return Records(features(arrays[f"{part}_images"]), labels, classes=10)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "digits": digits,
    "breast_cancer": breast_cancer,
    "heart": heart,
    "mnist": mnist,
    "mnist_cnn": mnist_cnn,
}
SPLITS = {name: ("IID", "label skew", *(("natural",) if name == "heart" else ())) for name in PROBLEMS}
"""How silos may share each."""


def _even(name: str, recipe: Recipe, records: Records, seed: int) -> Problem:
    """A fifth held out, drawn by the seed."""
    order = np.random.default_rng(seed).permutation(len(records))
    cut = round(len(records) * HELD_OUT)
    train, test = rows(records, order[cut:]), rows(records, order[:cut])
    model = model_terms("logistic", records.features.shape[1], (), outputs_for(records.classes))
    return Problem(name, "accuracy", recipe, model, train, test, _splits(train, seed))


def _splits(records: Records, seed: int) -> dict[str, list[NDArray[np.intp]]]:
    """Four equal silos, at random, or one after the other along the sorted labels."""
    order = np.random.default_rng(seed).permutation(len(records))
    by_label = order[np.argsort(records.labels[order], kind="stable")]
    return {"IID": np.array_split(order, SILOS), "label skew": np.array_split(by_label, SILOS)}


def rows(records: Records, chosen: NDArray[np.intp]) -> Records:
    """Some of the records."""
    return Records(records.features[chosen], records.labels[chosen], classes=records.classes)


def _joined(tables: Sequence[Records]) -> Records:
    return Records(
        np.concatenate([records.features for records in tables]),
        np.concatenate([records.labels for records in tables]),
        classes=tables[0].classes,
    )


def _read(table: Table, schema: DataSchema) -> Records:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(table.csv_bytes())
        return read_csv_table(path, schema, "patient")


def documented_ranges(text: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest value of each attribute, as the dataset's public description prints them."""
    found = re.findall(r"^[a-z ]+\((?:mean|standard error|worst)\): +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    low, high = np.array(found, dtype=np.float64).T
    return low, high


def _pixels_of(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (images.reshape(len(images), -1) / 127.5 - 1).astype(np.float32)
    return scaled


def _scattering_of(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A minute of work, kept in the temporary folder under a digest of the images and of the code."""
    code = Path(scattering.__file__).read_bytes() + Path(catalogue.__file__).read_bytes()
    kept = Path(tempfile.gettempdir()) / f"sealsum-{hashlib.sha256(code + images.tobytes()).hexdigest()}.npy"
    if kept.exists():
        loaded: NDArray[np.float32] = np.load(kept, allow_pickle=False)
        return loaded
    pixels = _pixels_of(images)
    terms = Scattering(rows=images.shape[1], columns=images.shape[2])
    features = np.empty((len(images), terms.outputs), dtype=np.float32)
    for start in range(0, len(images), 1000):
        features[start : start + 1000] = catalogue.fixed_features(terms, pixels[start : start + 1000])
    np.save(kept, features)
    return features

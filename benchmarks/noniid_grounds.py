"""What the non-IID benchmark learns and how four silos share it: digits by label, hospitals, made-up stores.

A partition seed fixes who holds what. Digits and stores are scored on records that no silo holds, hospitals
each on its own held-out third, as FLamby splits them.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from benchmarks.flamby_heart import flamby_hospitals, flamby_schema
from privacy.errors import ConfigurationError
from privacy.fixed_features import OrientedGradients
from privacy.ids import PartyId, SiloId
from privacy.plan import ModelTerms
from sealsum.partition.splits import Asked, SplitKind, Table, partition
from silo_agent.data.records import Records
from silo_agent.features import catalogue, oriented
from silo_agent.models.layouts import model_terms

SILOS: Final = 4
DatasetName: TypeAlias = Literal["mnist", "digits"]
NetworkName: TypeAlias = Literal["gradients", "cnn"]
"""One layer of 64 units on oriented gradients of the image, 25,802 parameters (on 8 × 8 digits: on their
pixels); the small network of Papernot et al. 2021 on its pixels, 26,010."""
Images: TypeAlias = tuple[ModelTerms, Records, Records]
"""The model, records to share out, and records that all are scored on."""
_GRADIENTS: Final = OrientedGradients(rows=28, columns=28, cells=7)
_PARTS: Final = ("train", "test")
_HELD_OUT: Final = 0.2
_STORE_RECORDS: Final = 1500
_STORE_HELD_OUT: Final = 500


@dataclass(frozen=True)
class Ground:
    """One partition under one seed."""

    model: ModelTerms
    silos: Mapping[SiloId, Records] = field(repr=False)
    """What each trains on."""
    held_out: Mapping[SiloId, Records] = field(repr=False)
    """What each silo's model is scored on; for digits by class, over one table that all share."""
    shared: Records | None = field(repr=False, default=None)
    """That one table."""


@lru_cache(maxsize=1)
def _mnist(network: NetworkName) -> Images:
    """60,000 + 10,000 images of 28 × 28."""
    with np.load(_mnist_file(), allow_pickle=False) as arrays:
        pixels = [
            (arrays[f"{part}_images"].reshape(-1, 784) / 127.5 - 1).astype(np.float32) for part in _PARTS
        ]
        labels = [arrays[f"{part}_labels"].astype(np.float32) for part in _PARTS]
    if network == "cnn":
        model = model_terms("cnn", 784, (16, 32, 32), 10)
    else:
        pixels = [_gradients_of(one) for one in pixels]
        model = model_terms("mlp", _GRADIENTS.outputs, (64,), 10)
    train, test = (Records(*one, classes=10) for one in zip(pixels, labels, strict=True))
    return model, train, test


def _digits(network: NetworkName) -> Images:
    """1,797 images of 8 × 8 (Alpaydin, Kaynak 1998), a fifth held out; too small for the convolutions."""
    if network == "cnn":
        raise ConfigurationError("the network of pixels: expected MNIST in SEALSUM_DATA, got digits")
    bunch = load_digits()
    everything = Records(
        (bunch.data / 8.0 - 1.0).astype(np.float32), bunch.target.astype(np.float32), classes=10
    )
    order = np.random.default_rng(0).permutation(len(everything))
    cut = round(len(order) * _HELD_OUT)
    return model_terms("mlp", 64, (64,), 10), everything.rows(order[cut:]), everything.rows(order[:cut])


def _gradients_of(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Half a minute of work, kept in the temporary folder under a digest of the pixels and of the code."""
    code = Path(catalogue.__file__).read_bytes() + Path(oriented.__file__).read_bytes()
    told = repr(_GRADIENTS).encode() + code + pixels.tobytes()
    kept = Path(tempfile.gettempdir()) / f"sealsum-{hashlib.sha256(told).hexdigest()}.npy"
    if kept.exists():
        loaded: NDArray[np.float32] = np.load(kept, allow_pickle=False)
        return loaded
    pieces = [pixels[start : start + 1000] for start in range(0, len(pixels), 1000)]
    features = np.concatenate([catalogue.fixed_features(_GRADIENTS, piece) for piece in pieces])
    np.save(kept, features)
    return features


IMAGES: Final[Mapping[DatasetName, Callable[[NetworkName], Images]]] = MappingProxyType(
    {"mnist": _mnist, "digits": _digits}
)


def dataset_here() -> DatasetName:
    """MNIST where ``SEALSUM_DATA`` names a folder that has it."""
    return "mnist" if "SEALSUM_DATA" in os.environ and _mnist_file().exists() else "digits"


def _mnist_file() -> Path:
    return Path(os.environ["SEALSUM_DATA"]) / "mnist" / "mnist.npz"


Draw: TypeAlias = Callable[[DatasetName, NetworkName, int], Ground]


def _split(kind: SplitKind, shards: int = 2, alpha: float = 0.5) -> Draw:
    def ground(dataset: DatasetName, network: NetworkName, seed: int) -> Ground:
        model, train, test = IMAGES[dataset](network)
        labels = train.labels.astype(np.intp)
        return _dealt(
            model, train, test, Table(labels, 10), Asked(kind, SILOS, seed, alpha=alpha, shards=shards)
        )

    return ground


def _disjoint(dataset: DatasetName, network: NetworkName, seed: int) -> Ground:
    """Each class whole at one silo: three at two silos, two at the others."""
    model, train, test = IMAGES[dataset](network)
    labels = train.labels.astype(np.intp)
    owner = np.random.default_rng(seed).permutation(10) % SILOS
    table = Table(labels, 10, groups=owner[labels])
    return _dealt(model, train, test, table, Asked("natural", SILOS, seed))


def _dealt(model: ModelTerms, train: Records, test: Records, table: Table, asked: Asked) -> Ground:
    dealt = partition(table, asked)
    silos = {_silo(place): train.rows(rows) for place, rows in enumerate(dealt.rows)}
    return Ground(model, silos, dict.fromkeys(silos, test), test)


def _hospitals(dataset: DatasetName, network: NetworkName, seed: int) -> Ground:
    """FLamby's one split, whatever the seed: logistic on the columns by public ranges."""
    halves = flamby_hospitals(flamby_schema())
    names = {title: SiloId(PartyId(title.replace(" ", "-").lower())) for title in halves}
    return Ground(
        model_terms("logistic", flamby_schema().width),
        {names[title]: one.train for title, one in halves.items()},
        {names[title]: one.test for title, one in halves.items()},
    )


def _stores(dataset: DatasetName, network: NetworkName, seed: int) -> Ground:
    """Synthetic: daily sales of four stores, by price, promotion, weekday, season and temperature.

    Made up by the seed. Stores differ in level, in how their customers answer to prices, and in the prices
    that they ask: a regression by store is skewed in features and in what it should learn.
    """
    silos, held_out = {}, {}
    shared = np.random.default_rng([seed, SILOS])
    weekdays, season = shared.normal(0, 0.15, 7), shared.uniform(0.1, 0.2)
    for place in range(SILOS):
        random = np.random.default_rng([seed, place])
        count = _STORE_RECORDS + _STORE_HELD_OUT
        price = np.clip(random.normal(-0.45 + 0.3 * place, 0.3, count), -1, 1)
        promotion = (random.random(count) < 0.2).astype(float)
        day = random.integers(0, 364, count)
        warmth = np.clip(-np.cos(2 * np.pi * day / 364) * 0.6 + random.normal(0, 0.2, count), -1, 1)
        sales = (
            -0.25
            + 0.12 * place
            - (0.15 + 0.1 * place) * price
            + 0.2 * promotion * (1 - price) / 2
            + weekdays[day % 7]
            + season * np.sin(2 * np.pi * day / 364)
            + 0.1 * warmth**2
            + random.normal(0, 0.05, count)
        )
        numbers = [price, promotion, warmth, np.sin(2 * np.pi * day / 364), np.cos(2 * np.pi * day / 364)]
        features = np.column_stack([*numbers, np.eye(7)[day % 7]]).astype(np.float32)
        table = Records(features, np.clip(sales, -1, 1).astype(np.float32), kind="real")
        silos[_silo(place)] = table.rows(np.arange(_STORE_RECORDS))
        held_out[_silo(place)] = table.rows(np.arange(_STORE_RECORDS, count))
    return Ground(model_terms("mlp", 12, (16,)), silos, held_out)


def _silo(place: int) -> SiloId:
    return SiloId(PartyId(f"silo-{place + 1}"))


PARTITIONS: Final[Mapping[str, Draw]] = MappingProxyType(
    {
        "iid": _split("iid"),
        "shards2": _split("shards", shards=2),
        "shards4": _split("shards", shards=4),
        "disjoint": _disjoint,
        "dirichlet0.1": _split("dirichlet", alpha=0.1),
        "hospitals": _hospitals,
        "stores": _stores,
    }
)
"""Name → what silos hold of a dataset under a seed. The last two are datasets of their own."""
IMAGE_PARTITIONS: Final = ("iid", "shards2", "shards4", "disjoint", "dirichlet0.1")
ONE_SEED: Final = ("hospitals",)
"""Nothing in them is drawn by the seed."""


def few(ground: Ground, records: int) -> Ground:
    """The first so many records of each silo, drawn anew from a shuffle: for trying things out."""
    random = np.random.default_rng(0)
    silos = {
        silo: held.rows(np.sort(random.permutation(len(held))[:records])) if len(held) > records else held
        for silo, held in ground.silos.items()
    }
    return replace(ground, silos=silos)

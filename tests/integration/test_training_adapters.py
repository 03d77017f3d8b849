"""A whole job in memory, secure sums included, on data of each adapter: it learns what the files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid
from sqlalchemy import create_engine, text

from privacy.ids import PartyId, SiloId
from privacy.labels import MaskLabel
from privacy.plan import DpTerms, ModelTerms, TrainingTerms, VectorTerms
from privacy.schema import AnyLabel, DataSchema, Label, NumericFeature
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.sums import secure_ring_sum
from silo_agent.data.masks import mask_names
from silo_agent.data.sources import read_dataset
from silo_agent.dataset_settings import DatasetSettings, PictureSource, SqlSource
from silo_agent.models.adapters import ADAPTERS, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms

pytestmark = pytest.mark.slow
SILOS, EACH, SIDE = 3, 40, 8
VECTOR = VectorTerms(coordinate_bound=16.0, scale_bits=20)
PIXELS = tuple(NumericFeature(column=f"pixel_{n}", low=0, high=255, impute=0) for n in range(SIDE**2))
CELLS = tuple(NumericFeature(column=name, low=-1, high=1, impute=0) for name in ("x", "y"))
SICK = Label(column="sick", threshold=0)
MASK = MaskLabel(pixels=tuple(mask_names(SIDE)))
Table = dict[str, list[Any]]


def a_table(silo: int) -> Table:
    """Whether x exceeds y, for made-up patients."""
    drawn = np.random.default_rng(silo).uniform(-1, 1, (EACH, 2)).round(4)
    sick = (drawn[:, 0] > drawn[:, 1]).astype(int)
    names = [f"p{number}" for number in range(EACH)]
    return {"patient": names, "x": drawn[:, 0].tolist(), "y": drawn[:, 1].tolist(), "sick": sick.tolist()}


def squares(silo: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Noisy pictures with one bright half, and where it is: uint8[EACH, 16, 16] each."""
    random = np.random.default_rng(silo)
    masks = np.zeros((EACH, 16, 16), dtype=np.uint8)
    for number in range(EACH):
        masks[number, :, slice(8, 16) if number % 2 else slice(0, 8)] = 1
    return (200 * masks + random.integers(0, 50, masks.shape)).astype(np.uint8), masks


def parquet(folder: Path, silo: int) -> DatasetSettings:
    pq.write_table(pa.table(a_table(silo)), folder / "records.parquet")
    return DatasetSettings(
        adapter="parquet", path=folder / "records.parquet", purpose=("p",), patient_id="patient"
    )


def sql(folder: Path, silo: int) -> DatasetSettings:
    columns = a_table(silo)
    engine = create_engine(f"sqlite:///{folder / 'records.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE seen (patient TEXT, x REAL, y REAL, sick INTEGER)"))
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        connection.execute(text("INSERT INTO seen VALUES (:patient, :x, :y, :sick)"), rows)
    engine.dispose()
    source = SqlSource(url=f"sqlite:///{folder / 'records.db'}", query="SELECT * FROM seen WHERE x > -2")
    return DatasetSettings(adapter="sql", sql=source, purpose=("p",), patient_id="patient")


def images(folder: Path, silo: int) -> DatasetSettings:
    pictures, _ = squares(silo)
    lines = ["file,patient,sick"]
    (folder / "in").mkdir()
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / "in" / f"{number}.png")
        lines.append(f"{number}.png,p{number},{number % 2}")
    (folder / "told.csv").write_text("\n".join(lines))
    source = PictureSource(side=SIDE, table=folder / "told.csv")
    return DatasetSettings(
        adapter="images", path=folder / "in", purpose=("p",), patient_id="patient", pictures=source
    )


def dicom(folder: Path, silo: int) -> DatasetSettings:
    pictures, _ = squares(silo)
    (folder / "in").mkdir()
    lines = ["file,sick"]
    for number, picture in enumerate(pictures):
        _scan(folder / "in" / str(number), f"p{number}", picture)
        lines.append(f"{number},{number % 2}")
    (folder / "told.csv").write_text("\n".join(lines))
    source = PictureSource(side=SIDE, table=folder / "told.csv")
    return DatasetSettings(
        adapter="dicom", path=folder / "in", purpose=("p",), patient_id="PatientID", pictures=source
    )


def segmented(folder: Path, silo: int) -> DatasetSettings:
    for kind, pictures in zip(("in", "masks"), squares(silo), strict=True):
        for number, picture in enumerate(pictures):
            (folder / kind / f"p{number}").mkdir(parents=True)
            Image.fromarray(picture).save(folder / kind / f"p{number}" / "1.png")
    source = PictureSource(side=SIDE, masks=folder / "masks")
    return DatasetSettings(
        adapter="images", path=folder / "in", purpose=("p",), patient_id="patient", pictures=source
    )


def _scan(path: Path, patient: str, pixels: NDArray[np.uint8]) -> None:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    file.SOPClassUID, file.SOPInstanceUID = SecondaryCaptureImageStorage, meta.MediaStorageSOPInstanceUID
    file.PatientID, file.PhotometricInterpretation, file.SamplesPerPixel = patient, "MONOCHROME2", 1
    file.Rows, file.Columns = pixels.shape
    file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = 8, 8, 7, 0
    file.PixelData = pixels.tobytes()
    file.save_as(path, enforce_file_format=True)


@pytest.mark.parametrize(
    ("write", "features", "label", "model"),
    [
        (parquet, CELLS, SICK, model_terms("logistic", 2)),
        (sql, CELLS, SICK, model_terms("logistic", 2)),
        (images, PIXELS, SICK, model_terms("logistic", SIDE**2)),
        (dicom, PIXELS, SICK, model_terms("logistic", SIDE**2)),
        (segmented, PIXELS, MASK, model_terms("unet", SIDE**2, (4, 8), SIDE**2)),
    ],
    ids=["parquet", "sql", "images", "dicom", "masks"],
)
def test_a_job_learns_privately_what_the_files_hold(
    tmp_path: Path,
    write: Callable[[Path, int], DatasetSettings],
    features: tuple[NumericFeature, ...],
    label: AnyLabel,
    model: ModelTerms,
) -> None:
    records = {}
    for silo in range(SILOS):
        (tmp_path / str(silo)).mkdir()
        dataset = write(tmp_path / str(silo), silo)
        schema = DataSchema(features=features, label=label, patient_id=dataset.patient_id)
        records[SiloId(PartyId(f"silo-{silo}"))] = read_dataset(dataset, schema, "patient", 1)
    assert all(len(one) == one.unit_count == EACH for one in records.values())
    training = TrainingTerms(
        algorithm="dp_fedavg", local_steps=3, learning_rate=1.0, server_learning_rate=1.0
    )
    dp = DpTerms(
        unit="patient", sample_rate=0.5, noise_multiplier=0.5, clip_l2=1.0, normaliser=20.0, delta=1e-5
    )
    terms = RoundTerms(model, training, dp, VECTOR)
    job = Federation(terms, ADAPTERS[model.adapter], records, rounds=6, add=secure_ring_sum)
    learnt = job.train(initial_vector(model, 0))
    hits = []
    for one in records.values():
        scores = predict_scores(ADAPTERS[model.adapter], model, learnt, one.features)
        hits.append(float(((scores > 0) == (one.labels > 0)).mean()))
    assert np.mean(hits) > 0.8, hits

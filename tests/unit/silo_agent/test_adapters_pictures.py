"""Claims of picture folders and DICOM: grey squares, whose they are, and nothing of a header in an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit, SecondaryCaptureImageStorage, generate_uid

from privacy.errors import ConfigurationError
from privacy.schema import ClassLabel, DataSchema, Label, NumericFeature
from silo_agent.data.pictures import read_pictures
from silo_agent.data.records import Records
from silo_agent.data.sources import assert_readable, columns_of, state_of
from silo_agent.dataset_settings import DatasetSettings, PictureSource

SIDE = 2
CHECKS = np.array([[0, 255], [255, 0]], dtype=np.uint8)


def _pixels(low: float = 0, high: float = 255) -> tuple[NumericFeature, ...]:
    return tuple(
        NumericFeature(column=f"pixel_{number}", low=low, high=high, impute=low) for number in range(SIDE**2)
    )


def _schema(label: Any, patient: str = "patient", features: Any = None) -> DataSchema:
    return DataSchema(features=features or _pixels(), label=label, patient_id=patient)


CLASSES = ClassLabel(column="class", categories=("well", "ill"))
SICK = Label(column="sick", threshold=0)


def _dataset(
    folder: Path, adapter: Any = "images", patient: str = "patient", **pictures: Any
) -> DatasetSettings:
    source = PictureSource(side=SIDE, **pictures)
    return DatasetSettings(adapter=adapter, path=folder, purpose=("p",), patient_id=patient, pictures=source)


def _save(path: Path, pixels: Any = CHECKS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels)).save(path)
    return path


def _read(dataset: DatasetSettings, schema: DataSchema) -> Records:
    return read_pictures(dataset, schema, "patient")


# --- images ---


def test_a_folder_tells_class_and_patient(tmp_path: Path) -> None:
    _save(tmp_path / "well" / "ann" / "1.png")
    _save(tmp_path / "ill" / "bob" / "1.png", 255 - CHECKS)
    records = _read(_dataset(tmp_path), _schema(CLASSES))
    assert records.patients == ("bob", "ann")
    np.testing.assert_array_equal(records.labels, [1, 0])
    np.testing.assert_array_equal(records.features, [[1, -1, -1, 1], [-1, 1, 1, -1]])


def test_a_table_tells_what_it_likes_of_each_picture(tmp_path: Path) -> None:
    _save(tmp_path / "in" / "a.png", np.repeat(np.repeat(CHECKS, 3, axis=0), 3, axis=1))
    _save(tmp_path / "in" / "b.png", np.full((2, 6), 51, dtype=np.uint8))
    table = tmp_path / "told.csv"
    table.write_text("file,patient,sick\na.png,ann,0\nb.png,bob,1\n")
    records = _read(_dataset(tmp_path / "in", table=table), _schema(SICK))
    assert records.patients == ("ann", "bob")
    np.testing.assert_array_equal(records.labels, [0, 1])
    np.testing.assert_allclose(records.features, [[-1, 1, 1, -1], [-0.6] * 4], atol=1e-6)


def test_colours_count_by_their_luminance(tmp_path: Path) -> None:
    _save(tmp_path / "well" / "ann" / "1.png", np.full((4, 4, 3), (0, 255, 0), dtype=np.uint8))
    assert columns_of(_dataset(tmp_path)) == ["class", "patient", *(f"pixel_{n}" for n in range(4))]
    features = _read(_dataset(tmp_path), _schema(CLASSES)).features
    np.testing.assert_allclose(features, 2 * 0.587 - 1, atol=0.005)


def test_a_picture_without_a_patient_or_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    _save(tmp_path / "in" / "ill" / "SECRET.png")
    with pytest.raises(ConfigurationError, match="file 1: expected it in CLASS/PATIENT/") as caught:
        _read(_dataset(tmp_path / "in"), _schema(CLASSES))
    assert "SECRET" not in str(caught.value)
    _save(tmp_path / "out.png")
    table = tmp_path / "told.csv"
    for name in ("../out.png", "none.png", "ill"):
        table.write_text(f"file,patient,sick\n{name},SECRET,0\n")
        with pytest.raises(
            ConfigurationError, match=r"told\.csv: row 2, column file: expected a file"
        ) as caught:
            _read(_dataset(tmp_path / "in", table=table), _schema(SICK))
        assert "SECRET" not in str(caught.value)


def test_what_is_no_plain_picture_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "ill" / "SECRET" / "1.png"
    _save(path, np.zeros((2, 2), dtype=np.uint16))
    with pytest.raises(ConfigurationError, match="file 1: expected one frame with 8 bits a channel"):
        _read(_dataset(tmp_path), _schema(CLASSES))
    for content in (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match="file 1: expected a picture as PNG, JPEG") as caught:
            _read(_dataset(tmp_path), _schema(CLASSES))
        assert "SECRET" not in str(caught.value)


def test_a_changed_folder_is_seen_and_an_empty_one_costs_no_budget(tmp_path: Path) -> None:
    dataset = _dataset(tmp_path)
    with pytest.raises(ConfigurationError, match="expected a folder with files, got none"):
        assert_readable(dataset)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        assert_readable(_dataset(tmp_path / "gone"))
    _save(tmp_path / "ill" / "bob" / "1.png")
    one = state_of(dataset)
    _save(tmp_path / "ill" / "bob" / "2.png")
    assert state_of(dataset) != one


# --- DICOM ---


def _dicom(path: Path, stored: Any, patient: str = "ann", packed: bool = False, **fields: Any) -> Path:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = JPEGBaseline8Bit if packed else ExplicitVRLittleEndian
    pixels = np.asarray(stored)
    header: dict[str, Any] = {
        "SOPClassUID": meta.MediaStorageSOPClassUID,
        "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "PatientID": patient,
        "PatientName": "SECRET^NAME",
        "PatientAge": "054Y",
        "Rows": pixels.shape[0],
        "Columns": pixels.shape[1],
        "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2",
        "BitsAllocated": 16,
        "BitsStored": 12,
        "HighBit": 11,
        "PixelRepresentation": int(pixels.min() < 0),
        **fields,
    }
    file = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    for keyword, value in header.items():
        setattr(file, keyword, value)
    plain = pixels.astype("<i2").tobytes()
    file.PixelData = encapsulate([plain]) if packed else plain
    file.save_as(path, enforce_file_format=True)
    return path


TWELVE = np.array([[0, 4095], [4095, 0]])


def test_header_table_and_grey_pixels_of_dicom_files(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _dicom(folder / "1", TWELVE)
    _dicom(folder / "2", TWELVE, patient="bob", PhotometricInterpretation="MONOCHROME1", PatientAge="006M")
    table = tmp_path / "told.csv"
    table.write_text("file,sick\n2,1\n1,0\n")
    age = NumericFeature(column="PatientAge", low=0, high=108, impute=50)
    schema = _schema(SICK, "PatientID", (*_pixels(), age))
    records = _read(_dataset(folder, "dicom", "PatientID", table=table), schema)
    assert records.patients == ("bob", "ann")
    np.testing.assert_allclose(records.features, [[1, -1, -1, 1, 1 / 108 - 1], [-1, 1, 1, -1, 0]], atol=1e-6)


def test_rescaled_pixels_are_what_the_header_says_they_measure(tmp_path: Path) -> None:
    _dicom(tmp_path / "1", TWELVE, RescaleSlope="1", RescaleIntercept="-1024", Modality="CT")
    schema = _schema(
        ClassLabel(column="Modality", categories=("CT", "MR")), "PatientID", _pixels(-1024, 3071)
    )
    records = _read(_dataset(tmp_path, "dicom", "PatientID", values="rescaled"), schema)
    np.testing.assert_array_equal(records.features, [[-1, 1, 1, -1]])
    np.testing.assert_array_equal(records.labels, [0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"BurnedInAnnotation": "YES"}, "expected a picture without text burned in"),
        ({"patient": ""}, "column PatientID: expected a patient id"),
        ({"NumberOfFrames": 2}, "expected one grey frame"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "expected one grey frame"),
        ({"Rows": 60000, "Columns": 60000}, "expected 1 to 8192 pixels"),
        ({"Rows": 9}, "expected a whole DICOM file"),
        ({"packed": True}, "expected uncompressed pixels"),
    ],
)
def test_a_dicom_file_that_does_not_fit_is_refused_by_its_number(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    _dicom(tmp_path / "1", TWELVE, **fields)
    schema = _schema(ClassLabel(column="Modality", categories=("CT", "")), "PatientID")
    with pytest.raises(ConfigurationError, match=f"file 1.*{message}") as caught:
        _read(_dataset(tmp_path, "dicom", "PatientID"), schema)
    assert "SECRET" not in str(caught.value)


def test_what_is_no_dicom_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "SECRET").write_text("patient,age\n")
    with pytest.raises(ConfigurationError, match="file 1: expected a whole DICOM file") as caught:
        _read(
            _dataset(tmp_path, "dicom", "PatientID"),
            _schema(ClassLabel(column="Modality", categories=("CT", "MR")), "PatientID"),
        )
    assert "SECRET" not in str(caught.value)

"""A damaged picture is its patient's alone: it ends no reading, whatever a job looks at (ADR 0043)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

from silo_agent.data.dicom_file import read_dicom
from silo_agent.data.grey import grey_square, image_pixels
from silo_agent.data.holdout import held_out
from silo_agent.data.misfits import Misfit

HEADER: dict[str, Any] = {
    "PatientID": "ann",
    "PatientAge": "054Y",
    "PatientWeight": "70",
    "SamplesPerPixel": 1,
    "PhotometricInterpretation": "MONOCHROME2",
    "Rows": 4,
    "Columns": 3,
    "BitsAllocated": 16,
    "BitsStored": 12,
    "HighBit": 11,
    "PixelRepresentation": 0,
    "RescaleSlope": "1",
    "RescaleIntercept": "0",
}
WEIGHT = struct.pack("<HH", 0x0010, 0x1030)


def _dicom(path: Path) -> bytes:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    for keyword, value in HEADER.items():
        setattr(file, keyword, value)
    file.PixelData = np.arange(12, dtype="<u2").tobytes()
    file.save_as(path, enforce_file_format=True)
    return path.read_bytes()


def _damaged(whole: bytes) -> Iterator[bytes]:
    """Cut here and there, and with one byte changed here and there behind the preamble."""
    yield from (whole[:length] for length in range(0, len(whole), 23))
    for place in range(132, len(whole), 3):
        yield whole[:place] + (b"\xff", b"\x01")[place % 2] + whole[place + 1 :]


def test_a_dicom_file_that_is_damaged_anywhere_is_a_misfit_or_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    told: list[str] = []
    for raw in _damaged(_dicom(path)):
        path.write_bytes(raw)
        try:
            read = read_dicom(path, ("PatientAge", "PatientWeight"), "rescaled", "file 1")
            grey_square(read.pixels, 2)
        except Misfit as misfit:
            told.append(str(misfit))
    assert len(told) > 40
    assert not [words for words in told if "ann" in words]


def test_no_job_can_ask_which_patient_has_a_field_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    whole = _dicom(path)
    kind = whole.index(WEIGHT) + len(WEIGHT)
    path.write_bytes(whole[:kind] + b"Q\xff" + whole[kind + 2 :])
    assert read_dicom(path, (), "grey", "file 1").patient == "ann"
    assert isinstance(read_dicom(path, ("PatientWeight",), "grey", "file 1").fields["PatientWeight"], Misfit)


def test_nothing_of_a_header_is_logged_or_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "a.dcm"
    whole = _dicom(path)
    path.write_bytes(whole.replace(b"054Y", b"ANNA").replace(b"1.2.3\0", b"ANNA.X"))
    read = read_dicom(path, ("PatientAge",), "grey", "file 1")
    assert isinstance(read.fields["PatientAge"], Misfit)
    assert not caplog.records
    assert not list(recwarn)


def test_a_tiff_that_says_nothing_of_its_size_is_a_misfit(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(path)
    raw = path.read_bytes()
    width = raw.index(struct.pack("<H", 256), struct.unpack("<I", raw[4:8])[0])
    path.write_bytes(raw[:width] + b"\xff" + raw[width + 1 :])
    with pytest.raises(Misfit, match="expected a picture"):
        image_pixels(path, "file 1")


def test_a_patient_whose_folder_has_a_name_in_another_encoding_is_held_out_or_not() -> None:
    names = [os.fsdecode(b"m\xfcller-%d" % number) for number in range(200)]
    assert 50 < np.count_nonzero(held_out(names, 0.5)) < 150


@pytest.mark.parametrize("shape", [(1, 200_000), (200_000, 1)])
def test_a_thin_picture_whose_square_would_fill_the_memory_is_a_misfit(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros(shape, dtype=np.uint8)).save(path)
    with pytest.raises(Misfit, match="expected 1 to 8192 pixels a side"):
        image_pixels(path, "file 1")

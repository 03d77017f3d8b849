"""One DICOM file as grey pixels and header fields. Only the fields that a job reads are looked at.

Sections are of DICOM PS3.3. A picture that says it has text burned in is none: names would be trained on.
"""

from __future__ import annotations

import logging
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.valuerep import PersonName

from silo_agent.data.cells import cell_text
from silo_agent.data.grey import assert_fits
from silo_agent.data.misfits import Cell, Misfit

_BROKEN: Final = (
    ArithmeticError,
    AttributeError,
    BytesLengthException,
    EOFError,
    InvalidDicomError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
"""What pydicom raises of damaged files, found by damaging some; elements are read when they are looked at."""
# What pydicom warns of quotes headers, and the agent's log takes warnings of libraries.
logging.getLogger("pydicom").setLevel(logging.CRITICAL)
_YEARS: Final = {"Y": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}


@dataclass(frozen=True, repr=False)
class DicomFile:
    """What a job reads of one file."""

    patient: str
    fields: dict[str, Cell]
    """Each with its cell, or why it has none."""
    pixels: NDArray[np.float32]


def is_keyword(column: str) -> bool:
    """Whether DICOM has a field of that name, such as ``PatientAge``."""
    return tag_for_keyword(column) is not None


def read_dicom(
    path: Path, keywords: Sequence[str], values: Literal["grey", "rescaled"], where: str
) -> DicomFile:
    """The patient's id (0010,0020), the fields asked for, and float32[rows, columns].

    Raises:
        Misfit: it is no DICOM file with one uncompressed grey frame, text is burned in, or it
            does not tell what its pixels measure though ``rescaled`` are asked for.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read: Any = pydicom.dcmread(path)
            fields = {keyword: _field(read, keyword, where) for keyword in keywords}
            return DicomFile(str(read.get("PatientID") or "").strip(), fields, _pixels(read, values, where))
    except Misfit:
        raise
    except _BROKEN as error:
        # Without its cause: pydicom's words may quote the header.
        raise Misfit(where, None, f"expected a whole DICOM file ({type(error).__name__})") from None


def _field(read: Any, keyword: str, where: str) -> Cell:
    try:
        value = read.get(keyword)
        if value is not None and dictionary_VR(keyword) == "AS":
            return _age(str(value), where, keyword)
        return cell_text(str(value) if isinstance(value, PersonName) else value, where, keyword)
    except Misfit as misfit:
        return misfit
    except _BROKEN as error:
        # Its own fault and no whole file's: which fields are looked at is the job's choice.
        return Misfit(where, keyword, f"expected a value of its kind ({type(error).__name__})")


def _age(text: str, where: str, keyword: str) -> str:
    """An age string (PS3.5, 6.2: ``054Y``) as years; nothing stays nothing."""
    if not text.strip():
        return ""
    if len(text) != 4 or not text[:3].isdigit() or text[3] not in _YEARS:
        raise Misfit(where, keyword, "expected an age such as 054Y")
    return repr(int(text[:3]) * _YEARS[text[3]])


def _pixels(read: Any, values: Literal["grey", "rescaled"], where: str) -> NDArray[np.float32]:
    if read.get("BurnedInAnnotation") == "YES":
        raise Misfit(where, None, "expected a picture without text burned in (0028,0301)")
    if read.file_meta.TransferSyntaxUID.is_compressed:
        raise Misfit(where, None, "expected uncompressed pixels; run: dcmdjpeg or gdcmconv --raw")
    dark_first = read.get("PhotometricInterpretation")
    if dark_first not in ("MONOCHROME1", "MONOCHROME2") or int(read.get("NumberOfFrames") or 1) != 1:
        raise Misfit(where, None, "expected one grey frame (MONOCHROME1 or 2)")
    assert_fits(int(read.Rows), int(read.Columns), where)
    stored = read.pixel_array.astype(np.float64)
    if stored.ndim != 2:  # more came than the header says
        raise Misfit(where, None, "expected one grey frame, of rows and columns, got more pixels")
    if values == "rescaled":
        slope, intercept = read.get("RescaleSlope"), read.get("RescaleIntercept")
        if slope is None or intercept is None or dark_first == "MONOCHROME1":
            raise Misfit(where, None, "expected MONOCHROME2 with a rescale slope and intercept")
        return np.asarray(stored * float(slope) + float(intercept), dtype=np.float32)
    span = 2.0 ** int(read.BitsStored) - 1.0
    low = -(2.0 ** (int(read.BitsStored) - 1)) if int(read.PixelRepresentation) else 0.0
    grey = (
        (stored - low) * 255.0 / span
    )  # pydicom has left out bits beyond those stored (overlays, PS3.5 8.1.1)
    return np.asarray(255.0 - grey if dark_first == "MONOCHROME1" else grey, dtype=np.float32)

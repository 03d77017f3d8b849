"""Folders of pictures or DICOM files as rows of cells: grey pixels, and what folder, table, header tell."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privacy.errors import ConfigurationError
from privacy.schema import DataSchema
from silo_agent.data.csv_table import csv_columns, csv_rows
from silo_agent.data.dicom_file import is_keyword, read_dicom
from silo_agent.data.encoding import PrivacyUnit, columns_read, encoded, places_of
from silo_agent.data.folder import files_in
from silo_agent.data.grey import grey_square, image_pixels
from silo_agent.data.masks import mask_cells, mask_names
from silo_agent.data.misfits import Cell, Misfit, Misfits, Row
from silo_agent.data.records import Records
from silo_agent.dataset_settings import DatasetSettings, PictureSource

_FILE: Final = "file"
_CLASS: Final = "class"


@dataclass(frozen=True, repr=False)
class _Picture:
    """One file, and what is known of it beside its content."""

    where: str
    path: Path
    name: Path
    """Relative to the folder."""
    cells: dict[str, str]


def read_pictures(
    dataset: DatasetSettings,
    schema: DataSchema,
    unit: PrivacyUnit,
    records_per_unit: int = 1,
    misfits: Misfits | None = None,
) -> Records:
    """Read a folder of pictures, one at a time.

    A file that is no such picture, or lies elsewhere than ``CLASS/PATIENT/`` or than its table says, is a
    misfit.

    Raises:
        ConfigurationError: a column is missing or doubled; or as ``encoded``.
    """
    with closing(picture_rows(dataset, schema)) as rows:
        return encoded(rows, schema, unit, records_per_unit, misfits)


def picture_columns(dataset: DatasetSettings) -> list[str]:
    """Names of the columns that every picture has; a DICOM header's fields are columns too, by keyword.

    Raises:
        ConfigurationError: the table cannot be read.
    """
    source = _source(dataset)
    if source.table is not None:
        try:
            told = csv_columns(source.table)
        except OSError as error:
            raise ConfigurationError(f"{source.table}: cannot be read ({error.strerror})") from error
    else:
        told = [_CLASS] if dataset.adapter == "images" and source.masks is None else []
    if source.table is None or dataset.adapter == "dicom":
        told = [*(name for name in told if name != dataset.patient_id), dataset.patient_id]
    masks = [] if source.masks is None else mask_names(source.side)
    return [*told, *_pixel_names(source), *masks]


def picture_rows(dataset: DatasetSettings, schema: DataSchema) -> Generator[Row, None, None]:
    """File or row, and the cells of ``columns_read``; holds one picture at a time.

    Raises:
        ConfigurationError: as ``read_pictures``.
    """
    source, wanted = _source(dataset), columns_read(schema)
    known = picture_columns(dataset)
    keywords = [
        name for name in wanted if dataset.adapter == "dicom" and name not in known and is_keyword(name)
    ]
    places_of([*known, *keywords], str(dataset.file), schema)
    names = _pixel_names(source)
    for picture in _listed(dataset, source):
        if isinstance(picture, Misfit):
            yield picture
            continue
        cells: dict[str, Cell] = dict(picture.cells)
        try:
            if dataset.adapter == "dicom":
                read = read_dicom(picture.path, keywords, source.values, picture.where)
                cells |= read.fields | {dataset.patient_id: read.patient}
                pixels = read.pixels
            else:
                pixels = image_pixels(picture.path, picture.where)
            if source.masks is not None:
                cells |= mask_cells(source.masks, picture.name, pixels, source.side, picture.where)
        except Misfit as misfit:
            yield misfit
            continue
        cells |= zip(names, grey_square(pixels, source.side), strict=True)
        yield picture.where, [cells[name] for name in wanted]


def _listed(dataset: DatasetSettings, source: PictureSource) -> Iterator[_Picture | Misfit]:
    folder = dataset.file
    if source.table is not None:
        yield from _of_table(folder, source.table)
        return
    layout = [_CLASS, dataset.patient_id] if source.masks is None else [dataset.patient_id]
    for number, path in enumerate(files_in(folder, least=1), start=1):
        where = f"{folder}: file {number}"
        steps = path.relative_to(folder).parts
        if dataset.adapter == "images" and len(steps) != len(layout) + 1:
            place = "PATIENT/" if source.masks else "CLASS/PATIENT/"
            yield Misfit(
                where,
                None,
                f"expected it in {place}; move it there, or name each picture's patient in a table "
                "(pictures.table)",
            )
            continue
        cells = dict(zip(layout, steps, strict=False)) if dataset.adapter == "images" else {}
        yield _Picture(where, path, path.relative_to(folder), cells)


def _of_table(folder: Path, table: Path) -> Iterator[_Picture | Misfit]:
    root = folder.resolve()
    for row in csv_rows(table):
        if isinstance(row, Misfit):
            yield row
            continue
        where, cells = row
        if _FILE not in cells:
            raise ConfigurationError(f"{table}: expected one column {_FILE!r} in the header, got 0")
        path = (root / cells[_FILE]).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            yield Misfit(where, _FILE, f"expected a file in the folder {folder}")
        else:
            yield _Picture(where, path, path.relative_to(root), cells)


def _source(dataset: DatasetSettings) -> PictureSource:
    if dataset.pictures is None:
        raise ConfigurationError(f"datasets: expected pictures with adapter {dataset.adapter}, got none")
    return dataset.pictures


def _pixel_names(source: PictureSource) -> list[str]:
    return [f"pixel_{number}" for number in range(source.side**2)]

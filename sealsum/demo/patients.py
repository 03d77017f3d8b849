"""The demo's public patients: UCI Heart Disease, one CSV file a hospital, shipped inside the package.

Knows no schema and no split. Source, licence (CC BY 4.0) and changes: ``data/ATTRIBUTION.md``.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from importlib import resources

from privacy.ids import PartyId, SiloId

LABEL_COLUMN = "num"
PATIENT_COLUMN = "patient_id"
LABEL_THRESHOLD = 0.0
"""Disease is ``num > 0``."""


@dataclass(frozen=True)
class Hospital:
    """One of the four hospitals: its name as a silo, for people, and the file that holds its patients."""

    silo: SiloId
    title: str
    file: str


HOSPITALS: tuple[Hospital, ...] = (
    Hospital(SiloId(PartyId("cleveland")), "Cleveland", "cleveland.csv"),
    Hospital(SiloId(PartyId("hungary")), "Hungary", "hungary.csv"),
    Hospital(SiloId(PartyId("switzerland")), "Switzerland", "switzerland.csv"),
    Hospital(SiloId(PartyId("va-long-beach")), "VA Long Beach", "va_long_beach.csv"),
)


@dataclass(frozen=True)
class Table:
    """Rows of one hospital as text, as its file has them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def sick(self, row: tuple[str, ...]) -> bool:
        """Whether a row's diagnosis is disease."""
        return float(row[self.columns.index(LABEL_COLUMN)]) > LABEL_THRESHOLD

    def csv_bytes(self) -> bytes:
        """The table as CSV, UTF-8, newline-terminated."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue().encode()


def patients_of(hospital: Hospital) -> Table:
    """All records of one hospital, in the file's order."""
    text = (resources.files("sealsum.demo") / "data" / hospital.file).read_text(encoding="utf-8")
    header, *rows = csv.reader(io.StringIO(text))
    return Table(tuple(header), tuple(tuple(row) for row in rows))

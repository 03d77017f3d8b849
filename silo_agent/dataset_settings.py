"""What ``silo.yaml`` says of one dataset: where its records lie, its purposes, its budget. Opens nothing.

Jobs name datasets; paths, databases and queries stand here alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from privacy.canonical import Frozen, Real
from privacy.errors import ConfigurationError
from privacy.ids import HexDigest, Name
from privacy.key_reference import KeyReference
from silo_agent.ledger.entries import EpsilonCaps

_URL: Final = re.compile(r"(sqlite:////|postgresql(\+psycopg)?://)\S+")
_PASSWORD: Final = re.compile(r"://[^/@]*:[^/]*@|[?&](ssl)?password=", re.IGNORECASE)
_SELECT: Final = re.compile(r"\s*(select|with)\b", re.IGNORECASE)

Sentence = Annotated[str, Field(min_length=1, max_length=500)]


class Budget(Frozen):
    """The most that jobs may cost a dataset's patients. Without one, the silo's threat model sets it."""

    epsilon: EpsilonCaps
    delta_max: Annotated[Real, Field(gt=0, lt=1)]
    period_days: Annotated[int, Field(ge=1, le=36500)] | None = None
    """Length of ``epsilon.period``: what counts is the last so many days, whatever the calendar says."""

    @model_validator(mode="after")
    def _caps_are_nested(self) -> Self:
        for caps in (self.epsilon, self.epsilon.of_fallback):
            if not caps.round <= caps.job <= caps.lifetime:
                raise ValueError("expected epsilon.round <= epsilon.job <= epsilon.lifetime")
            if (caps.period is None) != (self.period_days is None):
                raise ValueError("expected period_days with epsilon.period, and in fallback if it is given")
            if caps.period is not None and not caps.round <= caps.period <= caps.lifetime:
                raise ValueError("expected epsilon.round <= epsilon.period <= epsilon.lifetime")
        own, whole = self.epsilon.of_fallback, self.epsilon
        if own.round < whole.round or own.job < whole.job or own.lifetime < whole.lifetime:
            raise ValueError("expected epsilon.fallback no lower than epsilon: one silo has less noise")
        return self


class SqlSource(Frozen):
    """A query that a database answers in a read-only transaction."""

    url: Annotated[str, Field(max_length=2000)]
    """As SQLAlchemy writes it: ``postgresql+psycopg://reader@host/database?sslmode=verify-full`` or
    ``sqlite:////absolute/path``. Other databases have no transaction that is known here to be read-only."""
    password: KeyReference | None = None
    """Where the password for ``url`` lies."""
    query: Annotated[str, Field(max_length=100_000)]
    """One SELECT, whose columns have the names that jobs give them."""

    @field_validator("url")
    @classmethod
    def _the_url_is_known_and_holds_no_password(cls, url: str) -> str:
        if _PASSWORD.search(url):
            raise ValueError("expected no password in it: name where it lies as password, such as env:NAME")
        if _URL.fullmatch(url) is None:
            raise ValueError("expected postgresql+psycopg://… or sqlite:////absolute/path")
        return url

    @field_validator("query")
    @classmethod
    def _the_query_is_one_select(cls, query: str) -> str:
        bare = query.strip().removesuffix(";")
        if _SELECT.match(bare) is None:
            raise ValueError("expected a query that begins with SELECT or WITH")
        if ";" in bare:
            raise ValueError("expected one statement, without a semicolon inside")
        return bare


class PictureSource(Frozen):
    """How pictures in a folder become columns: grey squares, ``pixel_0`` … row by row, from 0 to 255."""

    side: Annotated[int, Field(ge=1, le=256)]
    """Pixels along each side; a picture that is no square is padded to one."""
    table: Path | None = None
    """A CSV with a column ``file`` (relative to the folder) and what else is known of each picture; without
    it pictures lie in ``CLASS/PATIENT/``, and DICOM files anywhere."""
    masks: Path | None = None
    """A folder with a mask for each picture, under its name: columns ``mask_0`` … of 0 and 1 (segmentation).
    Without a table pictures then lie in ``PATIENT/``: there is no class."""
    values: Literal["grey", "rescaled"] = "grey"
    """``rescaled`` (DICOM): what a pixel measures by the header's slope and intercept (Hounsfield units)."""


class DatasetSettings(Frozen):
    """One dataset that jobs may name, and the purposes it may serve."""

    adapter: Literal["csv", "parquet", "sql", "images", "dicom"] = "csv"
    path: Path | None = None
    """The file, or folder of pictures, that the adapter reads."""
    sql: SqlSource | None = None
    pictures: PictureSource | None = None
    patient_id: Annotated[str, Field(min_length=1, max_length=100)] = "patient_id"
    """The column that tells patients apart; a job that names another would protect another unit: refused."""
    purpose: Annotated[tuple[Sentence, ...], Field(min_length=1)]
    """Purposes, word for word, that a job may state; purpose limitation (GDPR Art. 5(1)(b))."""
    schemas: tuple[HexDigest, ...] = ()
    """Digests of the data schemas that jobs may use, once their owner has read them; none listed: any.

    A cell that a schema does not know ends the silo's part in the round, which others see and no ε counts:
    a researcher who may choose the schema can ask one question a job about the cells of a column.
    """
    legal_basis: Annotated[str, Field(max_length=500)] = ""
    """On which legal basis it may be processed; required where a threat model's data are about people."""
    min_records: Annotated[int, Field(ge=1)] = 1
    """The least records to train on; the threat models' ``limits.min_records`` holds too."""
    budget: Budget | None = None
    composition: Literal["basic", "filter"] = "basic"
    """How jobs compose over the dataset's life, for good: ``basic`` adds up ε and δ; ``filter`` keeps a Rényi
    divergence within what (lifetime, delta_max) allows, dearer for one job and cheaper for many."""
    patients_also_in: tuple[Name, ...] = ()
    """Datasets that may hold records of the same patients: a job on any of them is charged to this one too,
    and a job on this one to them."""

    @field_validator("purpose", mode="before")
    @classmethod
    def _one_purpose_is_a_list_of_one(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _the_adapter_has_its_source(self) -> Self:
        if (self.sql is not None) != (self.adapter == "sql"):
            raise ValueError(f"sql: expected it with adapter sql and no other, got adapter {self.adapter}")
        if (self.path is None) != (self.adapter == "sql"):
            raise ValueError("path: expected the file that the adapter reads; with adapter sql, none")
        if (self.pictures is not None) != (self.adapter in ("images", "dicom")):
            raise ValueError(
                f"pictures: expected it with adapters images and dicom alone, got adapter {self.adapter}"
            )
        if self.pictures is not None and self.pictures.values == "rescaled" and self.adapter != "dicom":
            raise ValueError("pictures.values: expected grey: only DICOM tells what a pixel measures")
        return self

    @property
    def file(self) -> Path:
        """What the adapter reads.

        Raises:
            ConfigurationError: the data lie in a database.
        """
        if self.path is None:
            raise ConfigurationError(f"datasets: expected a path with adapter {self.adapter}, got none")
        return self.path

    @property
    def source(self) -> str:
        """Where the records lie, for people at the silo."""
        return f"file, {self.path.resolve()}" if self.sql is None and self.path else f"query at {self.at}"

    @property
    def at(self) -> str:
        """The path, or the database's URL, which holds no password."""
        return str(self.path) if self.sql is None else self.sql.url

    def anchored(self, base: Path) -> DatasetSettings:
        """With absolute paths."""
        if self.path is None:
            return self
        pictures = self.pictures
        if pictures is not None:
            beside = {"table": pictures.table, "masks": pictures.masks}
            placed = {name: base / path for name, path in beside.items() if path is not None}
            pictures = pictures.model_copy(update=placed)
        return self.model_copy(update={"path": base / self.path, "pictures": pictures})


def place_of(dataset: DatasetSettings) -> object:
    """Equal for two datasets that are the same file, be it by a link, or the same query.

    Copies of a file, and two queries that find the same patients, cannot be told here.
    """
    if dataset.sql is not None:
        return dataset.sql.url, " ".join(dataset.sql.query.split())
    place = dataset.file.resolve()
    try:
        state = place.stat()
    except OSError:
        return place
    return state.st_dev, state.st_ino

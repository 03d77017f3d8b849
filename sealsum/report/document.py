"""What a report consists of, whatever it is written in: a verdict strip, and sections of plain blocks.

Knows no pack, no HTML and no PDF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["neutral", "good", "bad"]
Ink = Literal["ink", "quiet", "rule", "accent", "good", "bad"]
"""Colours by meaning: each writer has its own for paper, light and dark."""


@dataclass(frozen=True)
class Tile:
    """One cell of the verdict strip."""

    name: str
    value: str
    more: str
    tone: Tone = "neutral"


@dataclass(frozen=True)
class Paragraph:
    """Prose."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Quote:
    """A sentence that the pack claims, word for word."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """Sentences of which the order says nothing."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Commands to copy, a line each."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows under a heading; the first column names its row."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    """Shares of the page, one a column."""
    numbers: frozenset[int] = frozenset()
    """Columns to set flush right."""


@dataclass(frozen=True)
class Stroke:
    """A line through points, in units of the drawing, from its upper left corner."""

    points: tuple[tuple[float, float], ...]
    ink: Ink
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Dot:
    """A filled disc."""

    x: float
    y: float
    radius: float
    ink: Ink


@dataclass(frozen=True)
class Label:
    """Text in a drawing; ``y`` is its baseline."""

    x: float
    y: float
    text: str
    ink: Ink = "quiet"
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = 11.0
    bold: bool = False


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows for those who cannot see it, and a caption."""

    width: float
    height: float
    marks: tuple[Stroke | Dot | Label, ...]
    description: str
    caption: str


Block = Paragraph | Quote | Bullets | Code | Table | Chart


@dataclass(frozen=True)
class Section:
    """A heading and what is under it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """The whole report."""

    title: str
    subtitle: str
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: str
    dated: str
    """RFC 3339, UTC: of the pack, so that the same pack has the same report."""

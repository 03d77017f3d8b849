"""Writes a report as PDF/A, for keeping: the same content as the page, the same bytes for the same pack.

Knows no pack. Fonts are DejaVu's, which come with matplotlib and have every sign that a claim uses.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

import matplotlib as mpl
from fpdf import FPDF
from fpdf.enums import MethodReturnValue, TableBordersLayout
from fpdf.fonts import FontFace

from sealsum.report.document import (
    Bullets,
    Chart,
    Code,
    Document,
    Dot,
    Ink,
    Label,
    Paragraph,
    Quote,
    Section,
    Stroke,
    Table,
    Tile,
    Tone,
)

_COLOURS: Final[dict[Ink, tuple[int, int, int]]] = {
    "ink": (27, 39, 51),
    "quiet": (82, 96, 109),
    "rule": (200, 208, 215),
    "accent": (11, 102, 144),
    "good": (20, 105, 58),
    "bad": (163, 33, 27),
}
_WASHES: Final[dict[Tone, tuple[int, int, int]]] = {
    "neutral": (245, 248, 250),
    "good": (232, 245, 236),
    "bad": (252, 235, 234),
}
_TONES: Final[dict[Tone, Ink]] = {"neutral": "ink", "good": "good", "bad": "bad"}
_PAPER = (255, 255, 255)
_SANS, _MONO = "DejaVu", "DejaVuMono"
_FONTS = (
    (_SANS, "", "DejaVuSans.ttf"),
    (_SANS, "B", "DejaVuSans-Bold.ttf"),
    (_MONO, "", "DejaVuSansMono.ttf"),
)
_LINE, _GAP = 4.6, 2.2
"""Millimetres: from line to line, and after a block."""
_TILES_IN_ROW = 3


_XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/"
 xmlns:pdfaid="http://www.aiim.org/pdfa/ns/id/" xmp:CreateDate="{dated}" xmp:ModifyDate="{dated}"
 xmp:MetadataDate="{dated}" pdfaid:part="3" pdfaid:conformance="B">
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">{title}</rdf:li></rdf:Alt></dc:title>
<dc:creator><rdf:Seq><rdf:li>{author}</rdf:li></rdf:Seq></dc:creator>
</rdf:Description></rdf:RDF></x:xmpmeta>"""
"""Metadata of PDF/A; the library's own would hold the time of writing."""
_AUTHOR = "Sealsum"


class _Pages(FPDF):
    """A4 pages that know their document's name."""

    def __init__(self, document: Document) -> None:
        super().__init__(format="A4", enforce_compliance="PDF/A-3B")
        self.document = document
        self.set_margins(18, 16, 18)
        self.set_auto_page_break(auto=True, margin=18)

    def ink(self, name: Ink, size: float, style: str = "", family: str = _SANS) -> None:
        """What is written next is in this colour and font."""
        self.set_text_color(*_COLOURS[name])
        self.set_font(family, style, size)

    def footer(self) -> None:
        """Which report, and which page of how many."""
        self.set_y(-13)
        self.ink("quiet", 7.5)
        self.cell(0, 4, f"{self.document.title}  ·  page {self.page_no()} of {{nb}}", align="C")


def pdf_report(document: Document) -> bytes:
    """The report as PDF bytes, dated as the document is."""
    pdf = _Pages(document)
    for family, style, file in _FONTS:
        pdf.add_font(family, style, Path(mpl.get_data_path()) / "fonts" / "ttf" / file)
    pdf.set_creation_date(datetime.strptime(document.dated, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC))
    pdf.set_title(document.title)
    pdf.set_author(_AUTHOR)
    pdf.set_xmp_metadata(_XMP.format(dated=document.dated, title=escape(document.title), author=_AUTHOR))
    pdf.set_lang("en")
    pdf.add_page()
    pdf.ink("ink", 17, "B")
    pdf.multi_cell(0, 7.5, document.title, align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ink("quiet", 9)
    pdf.multi_cell(0, _LINE, document.subtitle, align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(3)
    for start in range(0, len(document.tiles), _TILES_IN_ROW):
        _tiles(pdf, document.tiles[start : start + _TILES_IN_ROW])
    for section in document.sections:
        _section(pdf, section)
    pdf.ln(3)
    pdf.ink("quiet", 8)
    pdf.multi_cell(0, 4, document.footer, align="L", new_x="LMARGIN", new_y="NEXT")
    return bytes(pdf.output())


def _tiles(pdf: _Pages, tiles: tuple[Tile, ...]) -> None:
    """A row of the verdict strip; all its cells are as high as the highest."""
    gap = 3.0
    width = (pdf.epw - gap * (_TILES_IN_ROW - 1)) / _TILES_IN_ROW
    left, top = pdf.l_margin, pdf.get_y()
    lowest = max(_tile(pdf, tile, left, top, width, drawn=False) for tile in tiles)
    for place, tile in enumerate(tiles):
        x = left + place * (width + gap)
        pdf.set_fill_color(*_WASHES[tile.tone])
        pdf.set_draw_color(*_COLOURS["rule" if tile.tone == "neutral" else _TONES[tile.tone]])
        pdf.rect(x, top, width, lowest - top, style="DF", round_corners=True, corner_radius=1.5)
        _tile(pdf, tile, x, top, width, drawn=True)
    pdf.set_xy(left, lowest + gap)


def _tile(pdf: _Pages, tile: Tile, x: float, top: float, width: float, *, drawn: bool) -> float:
    """Where the text of a tile ends, with the space below it."""
    texts: tuple[tuple[str, Ink, float, str, float], ...] = (
        (tile.name.upper(), "quiet", 6.8, "", 3.4),
        (tile.value, _TONES[tile.tone], 10.5, "B", 5.0),
        (tile.more, "quiet", 7.6, "", 3.7),
    )
    y = top + 2.5
    for text, ink, size, style, line in texts:
        pdf.ink(ink, size, style)
        pdf.set_xy(x + 2.5, y)
        y += _written(pdf, width - 5, line, text, 0, drawn=drawn, fill=False)
    return y + 2.5


def _written(
    pdf: _Pages, width: float, line: float, text: str, padding: int, *, drawn: bool, fill: bool
) -> float:
    """Write text, or only measure it; its height."""
    height = pdf.multi_cell(
        width,
        line,
        text,
        align="L",
        padding=padding,
        fill=fill,
        dry_run=not drawn,
        output=MethodReturnValue.HEIGHT,
        new_x="LMARGIN",
        new_y="NEXT",
    )
    if not isinstance(height, float | int):
        raise TypeError("fpdf2: multi_cell was asked for a height and returned something else")
    return height


def _section(pdf: _Pages, section: Section) -> None:
    """A heading, with its bookmark, and its blocks."""
    if pdf.will_page_break(28):
        pdf.add_page()
    pdf.ln(3.5)
    pdf.start_section(section.title)
    pdf.ink("ink", 12, "B")
    pdf.multi_cell(0, 6, section.title, align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.set_draw_color(*_COLOURS["rule"])
    pdf.set_line_width(0.2)
    pdf.line(pdf.l_margin, pdf.get_y() + 0.8, pdf.l_margin + pdf.epw, pdf.get_y() + 0.8)
    pdf.ln(2.6)
    for block in section.blocks:
        if isinstance(block, Table):
            _table(pdf, block)
        elif isinstance(block, Chart):
            _chart(pdf, block)
        else:
            _WRITERS[type(block)](pdf, block)
        pdf.ln(_GAP)


def _paragraph(pdf: _Pages, block: Paragraph) -> None:
    pdf.ink("quiet" if block.quiet else "ink", 8.6 if block.quiet else 9.4)
    pdf.multi_cell(0, _LINE, block.text, align="L", new_x="LMARGIN", new_y="NEXT")


def _boxed(pdf: _Pages, text: str, *, mono: bool) -> None:
    """A washed box, on one page if it fits on one."""
    if mono:
        pdf.ink("ink", 8, family=_MONO)
    else:
        pdf.ink("ink", 9.4)
    if pdf.will_page_break(_written(pdf, 0, _LINE, text, 3, drawn=False, fill=False)):
        pdf.add_page()
    pdf.set_fill_color(*_WASHES["neutral"])
    top, page = pdf.get_y(), pdf.page
    _written(pdf, 0, _LINE, text, 3, drawn=True, fill=True)
    if not mono and page == pdf.page:
        pdf.set_fill_color(*_COLOURS["accent"])
        pdf.rect(pdf.l_margin, top, 1.0, pdf.get_y() - top, style="F")


def _bullets(pdf: _Pages, block: Bullets) -> None:
    for item in block.items:
        pdf.ink("ink", 9.4)
        pdf.cell(4, _LINE, "–")
        pdf.multi_cell(0, _LINE, item, align="L", new_x="LMARGIN", new_y="NEXT")
        pdf.ln(0.7)


def _table(pdf: _Pages, block: Table) -> None:
    pdf.ink("quiet", 8.2)
    pdf.multi_cell(0, 4, block.caption, align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(0.8)
    pdf.ink("ink", 8.2)
    pdf.set_draw_color(*_COLOURS["rule"])
    pdf.set_fill_color(*_PAPER)  # a cell takes the colour that was used last
    align = tuple("RIGHT" if column in block.numbers else "LEFT" for column in range(len(block.head)))
    with pdf.table(
        col_widths=block.widths,
        text_align=align,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
        headings_style=FontFace(emphasis="BOLD", color=_COLOURS["quiet"]),
        line_height=4.1,
        padding=(1.0, 1.2),
        v_align="TOP",
        wrapmode="CHAR" if _has_long_words(block) else "WORD",
    ) as table:
        for row in (block.head, *block.rows):
            table.row(row)


def _has_long_words(block: Table) -> bool:
    """A digest is wider than its column: only there are words broken between letters."""
    return any(len(word) > 40 for row in block.rows for cell in row for word in cell.split())


def _chart(pdf: _Pages, block: Chart) -> None:
    scale = pdf.epw / block.width
    if pdf.will_page_break(block.height * scale + 10):
        pdf.add_page()
    left, top = pdf.l_margin, pdf.get_y()
    for mark in block.marks:
        if isinstance(mark, Stroke):
            pdf.set_draw_color(*_COLOURS[mark.ink])
            pdf.set_line_width(mark.width * scale)
            pdf.set_dash_pattern(*((5 * scale, 4 * scale) if mark.dashed else (0, 0)))
            pdf.polyline([(left + x * scale, top + y * scale) for x, y in mark.points])
        elif isinstance(mark, Dot):
            pdf.set_fill_color(*_COLOURS[mark.ink])
            pdf.circle(left + mark.x * scale, top + mark.y * scale, mark.radius * scale, style="F")
        else:
            _label(pdf, mark, left, top, scale)
    pdf.set_dash_pattern()
    pdf.set_line_width(0.2)
    pdf.set_xy(left, top + block.height * scale + 1)
    pdf.ink("quiet", 8.2)
    pdf.multi_cell(0, 4, block.caption, align="L", new_x="LMARGIN", new_y="NEXT")


def _label(pdf: _Pages, mark: Label, left: float, top: float, scale: float) -> None:
    points = mark.size * scale * 72 / 25.4
    pdf.ink(mark.ink, points, "B" if mark.bold else "")
    back = {"start": 0.0, "middle": 0.5, "end": 1.0}[mark.anchor] * pdf.get_string_width(mark.text)
    pdf.text(left + mark.x * scale - back, top + mark.y * scale, mark.text)


def _quote(pdf: _Pages, block: Quote) -> None:
    _boxed(pdf, block.text, mono=False)


def _code(pdf: _Pages, block: Code) -> None:
    _boxed(pdf, block.text, mono=True)


_WRITERS: dict[type, Callable[..., None]] = {
    Paragraph: _paragraph,
    Quote: _quote,
    Bullets: _bullets,
    Code: _code,
}

"""Writes a report as one self-contained HTML page: no script, no network, light, dark and on paper."""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, StrictUndefined, select_autoescape

from sealsum.report.document import Block, Document


def html_report(document: Document) -> bytes:
    """UTF-8; every text is escaped."""
    environment = Environment(
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = resources.files("sealsum.report") / "templates" / "report.html.j2"
    template = environment.from_string(source.read_text(encoding="utf-8"))
    return template.render(document=document, kind=_kind).encode()


def _kind(block: Block) -> str:
    return type(block).__name__

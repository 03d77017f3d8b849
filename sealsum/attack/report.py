"""``report.html`` of a suite: one self-contained page, pictures inside; no script, no network."""

from __future__ import annotations

import base64
from importlib import resources

from jinja2 import Environment, StrictUndefined, select_autoescape

from sealsum import __version__
from sealsum.attack.picture import epsilon_png, strips_png
from sealsum.attack.suite import Result


def render_report(result: Result) -> bytes:
    """The page as UTF-8 HTML."""
    environment = Environment(
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = resources.files("sealsum.attack") / "templates" / "report.html.j2"
    page = environment.from_string(source.read_text(encoding="utf-8")).render(
        result=result,
        version=__version__,
        bounds=_embedded(epsilon_png(result)),
        pictures={
            attack.title: _embedded(strips_png(findings.strips))
            for attack, findings in result.parts
            if findings.strips
        },
    )
    return page.encode()


def _embedded(png: bytes) -> str:
    """A ``data:`` URL."""
    return "data:image/png;base64," + base64.b64encode(png).decode()

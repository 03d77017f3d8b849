"""``report.html``: one self-contained page for people; no script, no network, readable on paper.

Knows no disk but its own template and no process: it turns results into HTML.
"""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, StrictUndefined, select_autoescape
from markupsafe import Markup

from privacy.secagg.catalogue import SCHEMES
from sealsum import __version__
from sealsum.demo.picture import Drawings
from sealsum.demo.results import DemoResult, Verdict, largest, middle
from sealsum.demo.seen import non_claims, seen
from sealsum.demo.summary import NOTE
from sealsum.evidence_claim import survivors_signed


def render_report(result: DemoResult, drawings: Drawings, verdict: Verdict | None) -> bytes:
    """The page as UTF-8 HTML.

    Args:
        verdict: what the verifier said, or ``None`` for the copy inside the pack, which cannot know.
    """
    environment = Environment(
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = resources.files("sealsum.demo") / "templates" / "report.html.j2"
    page = environment.from_string(source.read_text(encoding="utf-8")).render(
        result=result,
        verdict=verdict,
        version=__version__,
        note=NOTE,
        withstands=SCHEMES[result.scheme].withstands,
        survivors=survivors_signed(result.scheme),
        seen=seen(result.scheme, result.norm_bound),
        non_claims=non_claims(result.scheme, result.norm_bound),
        # Our own drawing, made from numbers and our own titles: the one text that is not escaped.
        auc_svg=Markup(drawings.auc),  # noqa: S704
        budget_svg=Markup(drawings.budget),  # noqa: S704
        middle=middle,
        largest=largest,
    )
    return page.encode()

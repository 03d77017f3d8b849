"""``report.html``: one self-contained page for people; no script, no network, readable on paper.

Knows no disk but its own template and no process: it turns results into HTML.
"""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, StrictUndefined, select_autoescape
from markupsafe import Markup

from sealsum import __version__
from sealsum.demo.picture import Drawings
from sealsum.demo.results import DemoResult, Verdict, largest, middle
from sealsum.demo.summary import NOTE

SEEN: tuple[tuple[str, str, str], ...] = (
    (
        "hospital (silo agent)",
        "its own patients; each round's model; its own ledger",
        "another hospital's patients, update or count",
    ),
    (
        "first share server",
        "one masked vector a hospital and round: uniform noise without the seed",
        "a seed, an update, the model's sum",
    ),
    (
        "second share server",
        "one sealed seed a hospital and round",
        "a vector, an update, the model's sum",
    ),
    (
        "aggregator",
        "plans, models, one opened sum a round",
        "one hospital's update, count or share",
    ),
    (
        "researcher",
        "the job it signed, the final model if the policy releases it to researchers, this evidence",
        "an update, a patient",
    ),
)
"""Party, what it saw in this run, what it never saw."""

NON_CLAIMS: tuple[str, ...] = (
    "Not medical software: the model was trained to show a mechanism and must not advise anyone about a "
    "patient.",
    "Ranges, learning rate and model size were chosen beforehand on these same public data. That tuning is "
    "outside the accounted ε; on private data it would have to be charged, or done elsewhere.",
    "Switzerland holds out three healthy patients: its own AUC is noise. And a federation need not help "
    "everyone: Cleveland alone, judged on its own patients, does about as well.",
    "Differential privacy bounds what the model reveals of one patient's presence; it does not hide facts "
    "about groups, nor make data anonymous by law.",
    "A hospital that lies about its training or poisons its update is not caught by sums alone.",
    "If all share servers collude they can open one hospital's update; it still carries that hospital's "
    "own DP noise.",
    "Noise is sampled in floating point; timing, power and other side channels are not covered.",
    "All parties ran on one machine, for show. Separation between operators is real only on separate "
    "machines.",
)


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
        seen=SEEN,
        non_claims=NON_CLAIMS,
        # Our own drawing, made from numbers and our own titles: the one text that is not escaped.
        auc_svg=Markup(drawings.auc),  # noqa: S704
        budget_svg=Markup(drawings.budget),  # noqa: S704
        middle=middle,
        largest=largest,
    )
    return page.encode()

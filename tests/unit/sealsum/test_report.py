"""The report of a pack: one content in HTML and PDF, honest about what it cannot vouch for, readable."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pypdfium2
import pytest

from privacy.errors import MalformedMessage
from privacy.ids import PartyId, ServerId
from sealsum.evidence import build_pack
from sealsum.evidence_archive import read_zip
from sealsum.report.content import Collected, Verdict, report_of
from sealsum.report.controls import CONTROLS
from sealsum.report.document import Bullets, Chart, Document, Paragraph, Quote, Table
from sealsum.report.facts import OwnPolicy, facts_of
from sealsum.report.html import html_report
from sealsum.report.pdf import pdf_report
from sealsum.report.silo_sections import dataset_card, effective_policies, policy_change
from tests.evidence_pack import AT, started_records
from tests.handover import honest_handover

ROOT = Path(__file__).parents[3]
COLLECTED = Collected("researcher", AT, "--officers " + "ab" * 32)
VERIFIED = Verdict(0, 14, 14, "", True, "0.1.0")
ORDER = (
    "What was verified",
    "The privacy claim",
    "Budgets",
    "Rounds",
    "Who took part",
    "Approvals",
    "The data",
    "What the policy",
    "What the policy does not protect against",
    "The policy in force at each silo",
    "Attacks against the bounds",
    "Software",
    "Limits",
    "Control mapping",
    "How to verify by hand",
    "Signatures",
)
ATTACK = {
    "name": "canaries",
    "protection": "σ = 1",
    "protected": True,
    "succeeded": False,
    "measured": "ε 4.05",
    "expected": "claim ε = 4.38",
    "verdict": "consistent",
    "figures": {"epsilon_at_least": 4.05, "epsilon_claimed": 4.38},
}


@cache
def files() -> dict[str, bytes]:
    """A job in which everything happens that a report tells: a dropout, a refusal, an approval, an attack."""
    records = started_records(rounds=3)
    records.add_round(1, absent=("silo-4",))
    records.add_round(2, refusing=("silo-1",))
    records.add_round(3, job_state="finished")
    attacks = {"suite": "quick", "version": "0", "ok": True, "duration_s": 1.0, "attacks": [ATTACK]}
    pack = build_pack(
        records.evidence(),
        {ServerId(PartyId(p)): c.served() for p, c in records.logs.items() if p != "aggregator"},
        {silo: ledger.lines() for silo, ledger in records.ledgers.items()},
        records.identity("researcher"),
        AT,
        json.dumps(attacks).encode(),
        [honest_handover(records, "silo-2")],
    )
    return read_zip(pack, "pack")


@cache
def document(verdict: Verdict | None = None) -> Document:
    return report_of(files(), COLLECTED, verdict)


@cache
def html(verdict: Verdict | None = None) -> str:
    return html_report(document(verdict)).decode()


@cache
def pdf_text() -> str:
    pdf = pypdfium2.PdfDocument(pdf_report(document()))
    text = "".join(page.get_textpage().get_text_range() for page in pdf)
    pdf.close()
    # A page's foot may stand between two lines of a paragraph.
    return re.sub(r"Evidenceofjobheart·page\d+of\d+", "", _squeezed(text))


def _squeezed(text: str) -> str:
    """Letters only: where a writer breaks its lines says nothing."""
    return re.sub(r"\s|￾|-", "", text)


def test_the_verdict_comes_first_and_sections_follow_in_order() -> None:
    titles = [section.title for section in document().sections]
    assert len(titles) == len(ORDER)
    for title, expected in zip(titles, ORDER, strict=True):
        assert title.startswith(expected)
    assert html().index("Verdict") < html().index("The privacy claim")


def test_a_report_inside_a_pack_never_says_that_the_pack_is_verified() -> None:
    assert document().tiles[0].value == "Run the verifier"
    assert "✓ Verified" not in html()
    assert "sealsum-verify evidence.zip --officers " + "ab" * 32 in html()


@pytest.mark.parametrize(
    ("verdict", "value", "tone"),
    [
        (VERIFIED, "✓ Verified", "good"),
        (Verdict(5, 9, 14, "log/aggregator.jsonl: cut", True, "0.1.0"), "✗ Not verified", "bad"),
        (Verdict(0, 14, 14, "", False, "0.1.0"), "Consistent, not pinned", "neutral"),
    ],
)
def test_the_strip_says_what_the_verifier_said(verdict: Verdict, value: str, tone: str) -> None:
    tile = document(verdict).tiles[0]
    assert (tile.value, tile.tone) == (value, tone)
    assert verdict.fault in tile.more


def test_html_and_pdf_have_the_same_content() -> None:
    told = pdf_text()
    for section in document().sections:
        assert _squeezed(section.title) in told
        for block in section.blocks:
            if isinstance(block, Quote):
                assert _squeezed(block.text) in told
            elif isinstance(block, Bullets):
                assert all(_squeezed(item) in told for item in block.items)
            elif isinstance(block, Chart):
                assert _squeezed(block.caption) in told
            elif isinstance(block, Table):
                cells = [cell for row in block.rows for cell in row if len(cell) < 12]
                assert all(_squeezed(cell) in told for cell in cells), block.caption


def test_what_happened_is_told() -> None:
    page = html()
    claim = json.loads(files()["dp/claim.json"])
    for text in (claim["statement"], "budget.job", "ada", "data steward", "ε at least 4.0500", "Hospital 3"):
        assert text in page
    assert '<td class="n">1</td>' in page


def test_the_data_and_both_policies_of_a_silo_are_told() -> None:
    facts = facts_of(files())
    (_, card) = dataset_card(facts).blocks
    assert isinstance(card, Table)
    assert card.rows == (("silo-2", "test", "consent", "50"),)
    (_, same) = effective_policies(facts).blocks
    assert isinstance(same, Paragraph)
    assert "the same as the federation's in every field" in same.text
    other = facts.policy_text.replace("automatic: allowed", "automatic: refused")
    stricter = replace(facts, own_policies=(OwnPolicy("silo-2", other, ()),))
    (_, table) = effective_policies(stricter).blocks
    assert isinstance(table, Table)
    assert table.rows == (("require.approvals.automatic", "allowed", "refused", "the silo's"),)


def test_what_the_charter_changed_of_the_policy_before_is_told() -> None:
    facts = facts_of(files())
    assert policy_change(facts) == ()
    before = facts.policy_text.replace("automatic: allowed", "automatic: refused")
    (section,) = policy_change(replace(facts, previous=OwnPolicy("", before, ())))
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert table.rows == (("require.approvals.automatic", "refused", "allowed", "looser"),)


def test_the_pdf_is_the_same_bytes_for_the_same_pack_and_has_bookmarks() -> None:
    once, twice = pdf_report(document()), pdf_report(document())
    assert once == twice
    assert b'pdfaid:part="3"' in once
    pdf = pypdfium2.PdfDocument(once)
    marks = [mark.get_title() for mark in pdf.get_toc()]
    pdf.close()
    assert marks == [section.title for section in document().sections]


def test_the_page_is_self_contained_and_runs_nothing() -> None:
    page = html()
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "@media print" in page
    assert "prefers-color-scheme: dark" in page
    assert all(f'<th scope="{scope}"' in page for scope in ("col", "row"))


def test_what_parties_wrote_is_escaped() -> None:
    evil = dict(files())
    job = json.loads(evil["job/job.json"])
    body = json.loads(job["body"]) | {"purpose": "<script>alert(1)</script>"}
    evil["job/job.json"] = json.dumps(job | {"body": json.dumps(body)}).encode()
    page = html_report(report_of(evil, COLLECTED)).decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("scheme", [0, 1])
def test_every_text_has_the_contrast_that_wcag_aa_asks_for(scheme: int) -> None:
    """4.5 to 1 (WCAG 2.2, 1.4.3) on sheet and wash, in the light and in the dark palette."""
    source = (ROOT / "sealsum/report/templates/report.html.j2").read_text(encoding="utf-8")
    palette = re.findall(r":root \{(.*?)\}", source, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", palette))
    for ink in ("ink", "quiet", "good", "bad", "accent"):
        for ground in ("sheet", "wash", *([f"{ink}-wash"] if ink in ("good", "bad") else [])):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_pack_that_cannot_be_read_gives_no_report() -> None:
    with pytest.raises(MalformedMessage, match="sealsum-verify names the entry"):
        report_of({**files(), "dp/claim.json": b"{}"}, COLLECTED)


# --- controls ---


def test_the_page_on_controls_is_the_reports_table() -> None:
    page = (ROOT / "docs/controls.md").read_text(encoding="utf-8")
    for control in CONTROLS:
        assert f"| {control.source} | {control.asks} | {control.mapped} | {control.left} |" in page


def test_nothing_is_called_more_than_mapped_to() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("sealsum/report/**/*")]
    pages += ROOT.glob("sealsum/evidence*.py")
    texts = {path: path.read_text(encoding="utf-8") for path in pages if path.suffix in (".md", ".py", ".j2")}
    forbidden = re.compile(r"\bcompliant\b", re.IGNORECASE)
    assert {path.name for path, text in texts.items() if forbidden.search(text)} == set()
    assert not forbidden.search(html())


def test_the_standard_for_elgamal_and_paillier_is_never_beside_ckks() -> None:
    for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("sealsum/report/*.py")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not ("18033-6" in line and "ckks" in line.lower()), path
    assert "18033-6" not in html()

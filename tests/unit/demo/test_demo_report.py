"""What a person and a machine read at the end says what happened, and runs nothing."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from io import StringIO
from typing import get_args

import pytest
from rich.console import Console

from privacy.plan import SchemeName
from privacy.secagg.catalogue import SCHEMES
from sealsum.demo.picture import draw
from sealsum.demo.report import render_report
from sealsum.demo.results import RefusalRow, Verdict
from sealsum.demo.seen import non_claims, seen
from sealsum.demo.summary import summarise, table_of
from tests.unit.demo.example import example_result

ACCEPTED = Verdict(0, ("1 ✓ canonical ZIP",))
REJECTED = Verdict(5, ("1 ✗ manifest.json",))


class Tags(HTMLParser):
    """Counts tags and collects everything a browser would fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.outward: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.outward.append(value or "")
            if name.startswith("on"):
                self.outward.append(name)


def page(verdict: Verdict | None, **changes: object) -> str:
    refusals = (RefusalRow(3, "hungary", "budget.job", "The job's cap would be passed."),) if changes else ()
    result = example_result(refusals=refusals)
    return render_report(result, draw(result), verdict).decode()


def test_the_page_is_self_contained_and_runs_no_script() -> None:
    tags = Tags(page(ACCEPTED))
    assert "script" not in tags.seen
    assert tags.outward == []
    assert tags.seen.count("svg") == 2
    assert "default-src 'none'" in page(ACCEPTED)


def test_the_verdict_is_the_verifiers_own() -> None:
    assert "✓ verified" in page(ACCEPTED)
    assert "✗ not verified" in page(REJECTED)
    assert "cannot vouch for the pack" in page(None)
    assert "✓ verified" not in page(REJECTED) + page(None)


def test_text_from_elsewhere_is_escaped() -> None:
    assert "&lt;b&gt;" in page(ACCEPTED)
    assert "<b>" not in page(ACCEPTED)


def test_refusals_are_listed_with_rule_and_reason() -> None:
    text = page(ACCEPTED, refusals=True)
    assert "budget.job" in text
    assert "would be passed" in text


def test_the_same_result_gives_the_same_bytes() -> None:
    assert page(ACCEPTED) == page(ACCEPTED)


def test_the_summary_has_the_promised_fields() -> None:
    summary = json.loads(summarise(example_result(), ACCEPTED, "evidence.zip", 61.2).model_dump_json())
    assert set(summary) >= {
        "version", "policy", "scheme", "rounds", "params", "silos", "auc",
        "bytes_up_per_silo_round", "openings", "refusals", "evidence", "verified",
    }  # fmt: skip
    assert set(summary["policy"]) == {"name", "digest"}
    assert set(summary["silos"][0]) >= {"name", "records", "epsilon", "delta", "auc"}
    assert set(summary["silos"][0]["auc"]) >= {"local_only", "federated"}
    assert set(summary["auc"]) == {"local_only_mean", "federated", "pooled"}
    assert summary["verified"] is True
    assert summary["openings"] == 20
    assert summary["refusals"] == 0


def test_a_pack_the_verifier_rejects_is_not_called_verified() -> None:
    assert summarise(example_result(), REJECTED, "evidence.zip", 61.2).verified is False


def test_the_closing_table_has_a_row_a_hospital_and_one_for_all() -> None:
    assert table_of(summarise(example_result(), ACCEPTED, "evidence.zip", 61.2)).row_count == 5


@pytest.mark.parametrize("noise_shares", [None, 2])
def test_the_closing_table_cuts_no_heading_on_a_screen_of_80_columns(noise_shares: int | None) -> None:
    summary = summarise(example_result(noise_shares=noise_shares), ACCEPTED, "evidence.zip", 61.2)
    screen = Console(width=80, file=StringIO(), record=True)
    screen.print(table_of(summary))
    text = screen.export_text()
    assert "…" not in text
    assert text.splitlines()[1].endswith("┓")
    assert ("ε_fallback" in text) is (noise_shares is not None)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_says_by_which_scheme_and_what_each_party_then_saw(scheme: str) -> None:
    result = example_result(scheme=scheme)
    text = render_report(result, draw(result), ACCEPTED).decode()
    assert f"<em>{scheme}</em>, which withstands" in text
    assert ("share server" in text) == (scheme == "additive")
    assert "aggregator" in text


def test_words_for_the_report_exist_for_every_scheme_that_a_job_may_name() -> None:
    for scheme in get_args(SchemeName):
        assert len(seen(scheme, None)) >= 3
        assert any("DP noise" in sentence for sentence in non_claims(scheme, None))


def test_servers_that_check_proofs_are_said_to_see_what_the_check_needs() -> None:
    """There every share server has a seed of its own, the first one too."""
    first = seen("additive", 22.9)[1]
    assert "share of its proof" in first[1]
    assert first[2].startswith("the other server's seed")
    assert seen("additive", None)[1][2].startswith("a seed")


def test_a_bound_that_was_proven_is_told_with_what_it_does_not_stop() -> None:
    result = example_result(norm_bound=22.9)
    text = render_report(result, draw(result), ACCEPTED).decode()
    assert "norm is at most 22.9" in text
    assert "longer than 22.9" in text
    assert "not caught by sums alone" not in text
    assert summarise(result, ACCEPTED, "evidence.zip", 1.0).norm_bound == 22.9

"""A plain report for people, for packs exported by the command line: scheme, claim and rounds in one page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from privacy.plan import JobSpec
from sealsum.evidence_claim import secagg_claim

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
td,th{{padding:.2rem .8rem;text-align:left;vertical-align:top}}</style></head>
<body><h1>{title}</h1>
<p>This page is for reading. The proof is in the files beside it: run <code>sealsum-verify</code>.</p>
<p>Updates were added up by <em>{scheme}</em>, which withstands {withstands}. In each round {survivors}.
Validity: {validity}.</p>
<table><tr><th>Round</th><th>Outcome</th><th>Sums opened</th><th>Silos in the sum</th><th>Signed by</th>
<th>Reason</th></tr>
{rows}</table></body></html>
"""
_CONFIRMING = ("consistency", "opened")
"""Sections in which silos vouch for the sum that they are in."""


def plain_report(evidence: Mapping[str, Any]) -> bytes:
    """UTF-8 HTML from the aggregator's answer; every value is escaped."""
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in _cells(round_)) + "</tr>"
        for round_ in evidence["rounds"]
    )
    job = JobSpec.model_validate_json(evidence["job"]["body"])
    said = {name: html.escape(text) for name, text in secagg_claim(job).items()}
    title = html.escape(f"Evidence of job {job.job}")
    return _PAGE.format(title=title, scheme=html.escape(job.scheme), rows=rows, **said).encode()


def _cells(round_: Mapping[str, Any]) -> tuple[object, ...]:
    """A round's number, outcome, openings, silos in the sum, who signed that set, and the reason."""
    result = json.loads(round_["result"]["body"])
    plan = json.loads(round_["offer"]["body"])["plan"]
    signers = [envelope["sender"] for envelope in round_["survivors"]]
    signers += [silo for section in _CONFIRMING for silo in sorted(round_[section])]
    counted = (result["outcome"], result["openings"], ", ".join(result["survivors"]))
    return (plan["round"], *counted, ", ".join(signers) if result["openings"] else "", result["reason"])

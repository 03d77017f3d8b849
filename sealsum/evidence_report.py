"""A plain report for people, for packs exported by the command line: the claim and the rounds in one page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}}
td,th{{padding:.2rem .8rem;text-align:left}}</style></head>
<body><h1>{title}</h1>
<p>This page is for reading. The proof is in the files beside it: run <code>sealsum-verify</code>.</p>
<table><tr><th>Round</th><th>Outcome</th><th>Sums opened</th><th>Silos in the sum</th><th>Reason</th></tr>
{rows}</table></body></html>
"""


def plain_report(evidence: Mapping[str, Any]) -> bytes:
    """UTF-8 HTML from the aggregator's answer; every value is escaped."""
    results = [json.loads(round_["result"]["body"]) for round_ in evidence["rounds"]]
    plans = [json.loads(round_["offer"]["body"])["plan"] for round_ in evidence["rounds"]]
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"
        for cells in (
            (plan["round"], r["outcome"], r["openings"], ", ".join(r["survivors"]), r["reason"])
            for plan, r in zip(plans, results, strict=True)
        )
    )
    job = json.loads(evidence["job"]["body"])["job"]
    return _PAGE.format(title=html.escape(f"Evidence of job {job}"), rows=rows).encode()

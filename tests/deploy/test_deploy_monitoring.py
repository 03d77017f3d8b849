"""Alerts and dashboard speak only of metrics that processes have; each alert fires where it must."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.validators import DEPLOY, ROOT, ran, tool, yaml_of

ALERTS = DEPLOY / "prometheus" / "sealsum-alerts.yaml"
ALERT_TESTS = DEPLOY / "prometheus" / "sealsum-alerts.test.yaml"
DASHBOARD = DEPLOY / "grafana" / "sealsum.json"
_NAME = re.compile(r"\b((?:sealsum|process)_[a-z0-9_]+)")
_PROCESS = {"process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total"}
"""Of the metrics that every Prometheus client has, those used here."""


def _documented() -> set[str]:
    """Series that docs/metrics.md names, whose own tests hold it against running processes."""
    names = set()
    for line in (ROOT / "docs" / "metrics.md").read_text("utf-8").splitlines():
        row = re.match(r"\| `(sealsum_\w+)` \|.*\| (.*) \|$", line)
        if row is not None:
            parts = ("_bucket", "_sum", "_count") if row[2].startswith("histogram") else ("",)
            names |= {row[1] + part for part in parts}
    return names


def _rules() -> list[dict[str, Any]]:
    groups: Any = yaml_of(ALERTS)["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    panels: list[dict[str, Any]] = dashboard["panels"]
    return panels


def _expressions() -> list[str]:
    return [target["expr"] for panel in _panels() for target in panel["targets"]]


@pytest.mark.parametrize("place", ["alerts", "dashboard"])
def test_every_expression_names_metrics_that_processes_have(place: str) -> None:
    expressions = [rule["expr"] for rule in _rules()] if place == "alerts" else _expressions()
    documented = _documented() | _PROCESS
    assert documented - _PROCESS
    for expression in expressions:
        names = set(_NAME.findall(expression))
        assert names or expression.startswith("up{"), expression
        assert names <= documented, f"{expression}: {names - documented}"


def test_the_dashboard_shows_every_metric_but_the_readers_own() -> None:
    """What is measured and never shown is forgotten; what an alert alone reads is named here."""
    shown = {name for expression in _expressions() for name in _NAME.findall(expression)}
    histogram_sums = {name for name in _documented() if name.endswith(("_sum", "_count"))}
    assert _documented() - shown - histogram_sums == {"sealsum_certificate_not_before_timestamp_seconds"}


def test_panels_do_not_overlap_and_are_numbered() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in _panels():
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in _panels()}) == len(_panels())


def test_every_alert_says_how_urgent_it_is_and_what_to_do_and_is_tested() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load(ALERT_TESTS.read_text("utf-8"))["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    for rule in _rules():
        assert rule["labels"]["severity"] in {"page", "ticket", "info"}
        assert rule["annotations"].keys() == {"summary", "action"}
        assert rule["alert"] in tested


def test_every_heading_that_an_alert_names_is_in_the_operators_pages() -> None:
    pages = "".join(
        (ROOT / "docs" / name).read_text("utf-8")
        for name in ("operating-a-silo.md", "operating-an-aggregator.md")
    )
    headings = re.findall(r"^#+ (?:\d+\. )?(.+)$", pages, re.MULTILINE)
    for rule in _rules():
        for named in re.findall(r"\(([^()]*)\)", rule["annotations"]["action"]):
            title = named.removeprefix("operating-a-silo.md, ")
            assert title in headings, f"{rule['alert']}: {title}"


@pytest.mark.slow
def test_prometheus_takes_the_alerts_and_they_fire_where_they_must() -> None:
    promtool = tool("promtool", "prometheus")
    assert f"{len(_rules())} rules found" in ran([promtool, "check", "rules", str(ALERTS)])
    assert "SUCCESS" in ran([promtool, "test", "rules", str(ALERT_TESTS)])
    ran([promtool, "check", "config", str(DEPLOY / "prometheus" / "scrape.yaml")])


@pytest.mark.slow
def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, for promtool reads no dashboards."""
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$instance", ".*")}
        for number, expression in enumerate(_expressions())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in ran([tool("promtool", "prometheus"), "check", "rules", str(file)])

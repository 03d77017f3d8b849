"""OCSF: every kind that a party logs is in the table, and events have what the classes require."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from policies.audit_sinks.ocsf import API, FINDING, LIFECYCLE, OCSF, ocsf_event, ocsf_line
from silo_agent.log import Kind
from tests.unit.audit_sinks.sinks_receivers import ORIGIN, record

ROOT = Path(__file__).parents[3]
REQUIRED = {
    FINDING: {"finding_info"},
    LIFECYCLE: {"app"},
    API: {"actor", "api", "src_endpoint"},
}
"""Required beside the base event's, by https://schema.ocsf.io/1.3.0/classes."""
BASE = {"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"}


def _kinds_of_servers() -> set[str]:
    text = "".join(path.read_text() for path in (ROOT / "aggregator").rglob("*.py"))
    literal = re.findall(r'\.record\(\s*"([a-z_]+)"', text)
    kept = re.findall(r'await keep\([^)]*?, "([a-z_]+)", cleared\)', text)
    chosen = re.findall(r'entry = "([a-z_]+)" if .* else "([a-z_]+)"', text)
    return {*literal, *kept, *(kind for pair in chosen for kind in pair)}


def test_every_kind_that_a_party_logs_is_in_the_table() -> None:
    found = _kinds_of_servers()
    assert {"sum_opened", "cohort_cleared", "silo_refused", "round_offered", "share_released"} <= found
    assert found | set(get_args(Kind)) | {"sink_failed", "sink_recovered"} == set(OCSF)


@pytest.mark.parametrize("kind", [*OCSF, "of_another_version"])
def test_an_event_has_what_its_class_requires(kind: str) -> None:
    one = record(3, kind)
    event = ocsf_event(one, ORIGIN)
    assert event.keys() >= BASE | REQUIRED[event["class_uid"]]
    assert event["type_uid"] == 100 * event["class_uid"] + event["activity_id"]
    assert event["category_uid"] == event["class_uid"] // 1000
    assert event["time"] == 1_796_032_800_123
    assert event["metadata"]["sequence"] == 3
    assert event["unmapped"]["record"] == json.loads(one.line())
    assert json.loads(ocsf_line(one, ORIGIN)) == event

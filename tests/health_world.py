"""Reading a health listener, and what docs/metrics.md promises of it."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `(sealsum_\w+)` \| ([\w, ]*?) ?\| ([\w ]+?) \|", re.MULTILINE)


def documented() -> dict[str, tuple[frozenset[str], str]]:
    """Metric → its labels, and which processes show it."""
    rows = _ROW.findall(DOCUMENT.read_text("utf-8"))
    return {name: (frozenset(filter(None, labels.split(", "))), where) for name, labels, where in rows}


def get(url: str, path: str) -> httpx.Response:
    """GET without any proxy of the environment."""
    with httpx.Client(base_url=url, trust_env=False) as http:
        return http.get(path)


def shown(exposition: str) -> dict[str, set[str]]:
    """Metric as the document names it → label names that its samples carry."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exposition):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith("sealsum_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found.setdefault(name, set()).update(labels)
    return found


def value(exposition: str, name: str, **labels: str) -> float:
    """One sample."""
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"{name}{labels} is not shown")

"""Settings every test shares: property tests are bounded in count, not in time (machines differ)."""

from __future__ import annotations

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from sealsum.evidence_software import bill_of_materials

settings.register_profile("sealsum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI judges a commit, so it asks the same of it each time. Whoever runs the tests by hand searches anew.
settings.register_profile("ci", settings.get_profile("sealsum"), derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "sealsum")


def pytest_configure(config: pytest.Config) -> None:
    """Packs that tests build in memory hold a PDF of a few bytes; a bill of materials is written once a date.

    Setting and listing would take longer than all else. ``tests/unit/sealsum/test_report.py`` sets and reads
    real PDFs, as does whatever runs as a process.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr("sealsum.evidence.pdf_report", lambda _document: b"%PDF-1.7 set by nobody")
    patch.setattr("sealsum.evidence.bill_of_materials", cache(bill_of_materials))
    config.add_cleanup(patch.undo)

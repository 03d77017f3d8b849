"""Ends the processes that the suites started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.threshold_scheme import WORKERS


@pytest.fixture(scope="package", autouse=True)
def _workers() -> Iterator[None]:
    yield
    for worker in WORKERS.values():
        worker.close()
    WORKERS.clear()

"""Settings every test shares: property tests are bounded in count, not in time (machines differ)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("sealsum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI judges a commit, so it asks the same of it each time. Whoever runs the tests by hand searches anew.
settings.register_profile("ci", settings.get_profile("sealsum"), derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "sealsum")

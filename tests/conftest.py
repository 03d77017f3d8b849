"""Settings every test shares: property tests are bounded in count, not in time (machines differ)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("sealsum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sealsum")

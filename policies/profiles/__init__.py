"""Threat models to start from, each with its rationale in comments: package data, read as text."""

from __future__ import annotations

from importlib.resources import files

from privacy.errors import ConfigurationError

PROFILES: dict[str, str] = {
    "cross-hospital-strict": "hostile aggregator, colluding silos, rare diseases, patient-level unit",
    "cross-hospital-one-server": "the same where nobody else runs a server: masks between hospitals",
    "bank-consortium-competitive": "competitors that hide counts, weights and metrics from each other",
    "single-operator-research": "one institution with several sites, honest but curious operator, one key",
    "tee-hosted-aggregator": "aggregator in a foreign cloud, trusted with nothing: no attestation is checked",
    "public-model-release": "parameters for everybody: small ε, once in a data set's life",
    "demo-hospitals": "cross-hospital-strict scaled to the four hospitals of the demonstration",
    "demo-validity": "demo-hospitals where hospitals prove a bound on their updates",
    "demo-queries": "demo-hospitals that also release statistics and metrics, each charged to the budget",
    "demo-distributed": "demo-hospitals where hospitals share the noise, with caps on what that risks",
    "demo-pairwise": "demo-hospitals without share servers: masks between hospitals, one server",
    "demo-bfv": "demo-hospitals with one curious server that adds ciphertexts; no hospital colludes",
    "demo-ckks": "the same with shorter ciphertexts; models stay with the hospitals",
    "demo-threshold-bfv": "demo-hospitals with one server and a key a round that nobody holds alone",
    "demo-threshold-ckks": "the same in shorter ciphertexts, for a curious server that nobody helps",
}
"""Name → whom it is for."""


def profile_text(name: str) -> str:
    """The YAML text of a profile, as shipped.

    Raises:
        ConfigurationError: there is no profile of that name.
    """
    if name not in PROFILES:
        raise ConfigurationError(f"profile: expected one of {', '.join(PROFILES)}, got {name!r}")
    return (files("policies.profiles") / f"{name}.yaml").read_text(encoding="utf-8")

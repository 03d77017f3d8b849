"""Which secure-aggregation schemes exist and what each withstands: one entry a scheme (docs/protocols.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """CPU time as a multiple of a plaintext sum's of the same updates: 10^6 parameters, 8 silos, one thread.

    From benchmarks/results/secagg.json, rounded; a whole round, encoding included.
    """

    silo: float
    servers: float


@dataclass(frozen=True)
class Scheme:
    """A scheme by name, in the words a threat model is written in."""

    name: str
    withstands: str
    colluding_servers: str
    """How many servers may collude, for k servers."""
    rounds: int
    """How often a silo sends and then waits within one round of training, until the sum is open."""
    bytes_per_parameter: float
    """Upload of a silo, not counting keys and manifest."""
    bytes_down_per_parameter: float
    """What a silo gets before it knows the sum: numbers, or ciphertexts, at 8 silos."""
    cost: Cost
    dropout: str
    validity: frozenset[str]
    """Values of ``require.validity`` that it can enforce."""
    refused: tuple[str, ...]
    """When the check of a threat model, or a silo, refuses it."""
    cost_with_validity: Cost | None = None
    """The same where each silo proves its update on shares."""


PLAINTEXT_MS = Cost(silo=3.4, servers=5.0)
"""Of the plaintext sum itself, in milliseconds on one core of the machine that measured it."""
MEASURED_PARAMETERS = 1_000_000

_NO_VALIDITY = "validity is required: one server sees no shares, so it has nobody to check them with"

SCHEMES: dict[str, Scheme] = {
    "additive": Scheme(
        name="additive",
        withstands="a malicious aggregator, any number of colluding silos, and all share servers but one",
        colluding_servers="k - 1",
        rounds=1,
        bytes_per_parameter=4.0,
        bytes_down_per_parameter=4.0,
        cost=Cost(silo=3.1, servers=3.5),
        dropout="costs nothing: a silo without a complete share is not in the sum",
        validity=frozenset({"none", "range", "l2_bound"}),
        refused=(
            "no share servers are assumed",
            "as many share servers may collude as there are",
            "share servers may share an operator although one may collude or the aggregator is malicious",
            "validity is required, and the plan claims none or a norm beyond update_norm_max",
        ),
        cost_with_validity=Cost(silo=75.0, servers=289.0),
    ),
    "pairwise": Scheme(
        name="pairwise",
        withstands="one server with c colluding silos: honest but curious if t > c, malicious if 2t > n + c",
        colluding_servers="the only one",
        rounds=5,
        bytes_per_parameter=4.0,
        bytes_down_per_parameter=4.0,
        cost=Cost(silo=11.2, servers=10.2),
        dropout="up to n - t silos at any step; each costs the server one mask for each survivor",
        validity=frozenset({"none"}),
        refused=(
            "share servers are assumed: the aggregator is the one server",
            "too few silos are left after the dropouts allowed to reach the threshold",
            "a silo's own threat model needs a higher threshold than the plan has",
            "more than 100 silos may be in a cohort",
            _NO_VALIDITY,
        ),
    ),
    "bfv": Scheme(
        name="bfv",
        withstands="an honest but curious server that no silo colludes with; sums are exact",
        colluding_servers="the only one, honest but curious, if no silo does",
        rounds=2,
        bytes_per_parameter=5.03,
        bytes_down_per_parameter=10.01,
        cost=Cost(silo=237.0, servers=280.0),
        dropout="before the sum is out it costs nothing; then as many as the minimum must stay to open it",
        validity=frozenset({"none"}),
        refused=(
            "share servers are assumed: the aggregator is the one server",
            "the aggregator may tamper: a scaled ciphertext passes every check that silos can make",
            "the aggregator may collude with a silo: all silos hold the one key",
            "silos may collude among themselves: to them any copy of a ciphertext is an update",
            _NO_VALIDITY,
        ),
    ),
    "ckks": Scheme(
        name="ckks",
        withstands="an honest but curious server that no silo colludes with; sums are rounded at the silo",
        colluding_servers="the only one, honest but curious, if no silo does",
        rounds=2,
        bytes_per_parameter=4.52,
        bytes_down_per_parameter=9.01,
        cost=Cost(silo=178.0, servers=239.0),
        dropout="before the sum is out it costs nothing; then as many as the minimum must stay to open it",
        validity=frozenset({"none"}),
        refused=(
            "share servers are assumed: the aggregator is the one server",
            "the aggregator may tamper: a scaled ciphertext passes every check that silos can make",
            "the aggregator may collude with a silo: all silos hold the one key",
            "the recipient is not the silos: a raw approximate decryption gives the key away",
            "silos may collude among themselves: to them any copy of a ciphertext is an update",
            _NO_VALIDITY,
        ),
    ),
    "threshold_bfv": Scheme(
        name="threshold_bfv",
        withstands="a malicious server with all silos but one, as long as they form keys and ciphertexts as "
        "agreed; sums are exact",
        colluding_servers="the only one",
        rounds=5,
        bytes_per_parameter=66.5,
        bytes_down_per_parameter=159.2,
        cost=Cost(silo=807.0, servers=451.0),
        dropout="before its key share is shown it costs nothing; then the round ends by name, unopened",
        validity=frozenset({"none"}),
        refused=(
            "share servers are assumed: the aggregator is the one server",
            "no Python with OpenFHE is there, at a silo or at the aggregator (threshold_he.python)",
            "more than 80 silos may be in a cohort",
            _NO_VALIDITY,
        ),
    ),
    "threshold_ckks": Scheme(
        name="threshold_ckks",
        withstands="an honest but curious server that no silo colludes with; the server rounds the sum",
        colluding_servers="the only one, honest but curious, if no silo does",
        rounds=5,
        bytes_per_parameter=24.1,
        bytes_down_per_parameter=60.0,
        cost=Cost(silo=463.0, servers=125.0),
        dropout="before its key share is shown it costs nothing; then the round ends by name, unopened",
        validity=frozenset({"none"}),
        refused=(
            "share servers are assumed: the aggregator is the one server",
            "the aggregator may tamper or collude with a silo, or silos may collude: what hides the key in a "
            "decryption is 10 bits of noise, not the 40 of an argument",
            "no Python with OpenFHE is there, at a silo or at the aggregator (threshold_he.python)",
            "more than 80 silos may be in a cohort",
            _NO_VALIDITY,
        ),
    ),
}

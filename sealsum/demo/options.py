"""What a user may choose about a demo run. Imports nothing heavy, so that help answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privacy.plan import AlgorithmName, SchemeName

POLICIES: dict[SchemeName, str] = {
    "additive": "demo-hospitals",
    "pairwise": "demo-pairwise",
    "bfv": "demo-bfv",
    "ckks": "demo-ckks",
    "threshold_bfv": "demo-threshold-bfv",
    "threshold_ckks": "demo-threshold-ckks",
}
"""Scheme → the threat model that the demo takes for it: the strictest that it can keep."""
VALIDITY_POLICY = "demo-validity"
"""``demo-hospitals`` where updates are checked inside their shares."""
DISTRIBUTED_POLICY = "demo-distributed"
"""``demo-hospitals`` where hospitals add shares of the noise, and what is left without the sum is capped."""
NoiseName = Literal["full", "distributed"]
"""Whether each hospital adds all of the noise, or its share of it."""
DEFAULT_OUT = Path("sealsum-demo")
DEFAULT_ROUNDS = 20
DEFAULT_EPSILON = 3.0


@dataclass(frozen=True)
class DemoOptions:
    """One run's options, as given on the command line."""

    policy: str
    scheme: SchemeName
    validity: bool
    """Whether each hospital proves the norm of its update on shares."""
    algorithm: AlgorithmName
    noise: NoiseName
    rounds: int
    epsilon: float | None
    """``None``: as much as the policy allows, at most ``DEFAULT_EPSILON``."""
    out: Path
    seed: int
    server_python: str
    openfhe: Path | None = None
    """The Python that runs OpenFHE, for schemes that need it; ``None`` for this one."""

"""What a threat model may ask that this release of Sealsum knows but cannot keep: refused by name.

A promise that nothing enforces is worse than none. Each refusal says what to write instead. The
secure-aggregation schemes come from ``privacy.secagg.catalogue``, so a new one needs no change here.

Whether *this machine* has a scheme's libraries is not asked here: an officer checks and signs a threat model
on any laptop, and its judgement must be the same everywhere. The parties that run the scheme refuse to start
(``aggregator/assembly.py``, ``silo_agent/own_policy.py``, the demonstration before it starts anybody).
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.schema import ThreatModel
from privacy.secagg.catalogue import SCHEMES


def scheme_available(model: ThreatModel) -> Iterator[Finding]:
    """Secure aggregation is not optional, and only catalogued schemes run."""
    scheme = model.spec.require.secagg.scheme
    if scheme not in SCHEMES:
        none = scheme == "none"
        yield Finding(
            "scheme_missing" if none else "scheme_unavailable",
            "updates are never added up in the open"
            if none
            else f"this release does not implement the scheme {scheme}",
            f"require.secagg.scheme: {' | '.join(sorted(SCHEMES))}",
            scheme,
            "write scheme: additive",
        )


def dp_as_implemented(model: ThreatModel) -> Iterator[Finding]:
    """Noise by silos, Poisson samples, add/remove adjacency, PLD, OS-keyed draws."""
    dp = model.spec.require.dp
    if dp is None:
        return
    implemented = (
        (
            "model",
            "distributed" if dp.model == "distributed" else "local",
            dp.model,
            "noise is added by the silos, each all of it or its share; no server is trusted to add any",
        ),
        (
            "adjacency",
            "add_remove",
            dp.adjacency,
            "the accountant prices adding or removing a unit; replacing one costs about double",
        ),
        (
            "sampling",
            "poisson",
            dp.sampling,
            "amplification is proven for the secret Poisson samples that silos draw",
        ),
        ("accountant", "pld", dp.accountant, "ε is computed by privacy-loss distributions only"),
        (
            "secure_rng",
            "true",
            str(dp.secure_rng).lower(),
            "noise and samples always come from the operating system's generator; it cannot be switched off",
        ),
    )
    for field, expected, got, why in implemented:
        if got != expected:
            yield Finding(
                f"dp_{field}_unavailable", why, f"require.dp.{field}: {expected}", got, f"write {expected}"
            )


def models_are_white_box(model: ThreatModel) -> Iterator[Finding]:
    """Whoever may read a model here downloads its parameters."""
    access = model.spec.assume.recipient.access
    if access != "white_box":
        yield Finding(
            "access_not_limited",
            "recipients download a model's parameters; nothing here serves predictions only",
            "assume.recipient.access: white_box",
            access,
            "write access: white_box",
        )


def model_beyond_recipient(model: ThreatModel) -> Iterator[Finding]:
    """A release wider than the assumed recipient breaks the assumption."""
    spec = model.spec
    if spec.release.model.to == "researchers" and spec.assume.recipient.kind == "silos":
        yield Finding(
            "release_beyond_recipient",
            "a researcher of another institution than the silos' is an external recipient",
            "release.model.to: silos, or assume.recipient.kind: external",
            "release.model.to: researchers, assume.recipient.kind: silos",
            "assume the wider recipient, or release to silos (their own researchers included)",
        )

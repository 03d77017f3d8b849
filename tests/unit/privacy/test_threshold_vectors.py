"""The wire format of threshold encryption, pinned: an implementation that agrees here can take part.

Key shares stand for themselves as any polynomial of the ring does, so that nothing here needs OpenFHE: the
share of silo n is the common polynomial of another context (``shares`` in the file).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import MalformedMessage
from privacy.ids import Context, Digest, SiloId
from privacy.secagg.threshold.messages import commits_digest, joint_key_digest, share_commitment
from privacy.secagg.threshold.parameters import PARAMETERS
from privacy.secagg.threshold.polynomials import added, common_polynomial, from_wire, to_wire
from privacy.secagg.threshold.terms import ThresholdTerms

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
GOOD: dict[str, Any] = json.loads((VECTORS / "threshold.json").read_text())
BAD: dict[str, Any] = json.loads((VECTORS / "bad_threshold.json").read_text())


def derive(vector: dict[str, Any]) -> dict[str, Any]:
    """Everything that follows from a vector's terms and share contexts."""
    terms = ThresholdTerms.model_validate(vector["terms"])
    shares = {
        SiloId(silo): common_polynomial(terms.row, Context(Digest(context)))
        for silo, context in vector["shares"].items()
    }
    raw = {silo: to_wire(terms.row, share) for silo, share in shares.items()}
    commitments = {silo: share_commitment(terms, silo, raw[silo]) for silo in sorted(raw)}
    joint = to_wire(terms.row, added(terms.row, shares.values()))
    common = to_wire(terms.row, common_polynomial(terms.row, terms.context))
    return {
        "terms_digest": terms.digest,
        "common_start": common[:32].hex(),
        "common_sha256": sha256_hex(common),
        "commitments": dict(commitments),
        "commits": commits_digest(terms, commitments),
        "joint_sha256": sha256_hex(joint),
        "joint_key": joint_key_digest(terms, commitments, joint),
    }


@pytest.mark.parametrize("vector", GOOD["rounds"], ids=lambda vector: vector["terms"]["parameters"])
def test_keys_of_a_round_are_the_pinned_ones(vector: dict[str, Any]) -> None:
    assert canonical_bytes(ThresholdTerms.model_validate(vector["terms"])) == canonical_bytes(vector["terms"])
    assert derive(vector) == vector["expected"]


def test_every_row_has_a_vector() -> None:
    assert {vector["terms"]["parameters"] for vector in GOOD["rounds"]} == set(PARAMETERS)


@pytest.mark.parametrize("vector", BAD["polynomials"], ids=lambda vector: vector["why"])
def test_bytes_that_are_no_polynomial_are_refused(vector: dict[str, Any]) -> None:
    row = PARAMETERS[vector["parameters"]]
    raw = b"".join(bytes.fromhex(piece["hex"]) * piece["times"] for piece in vector["bytes"])
    with pytest.raises(MalformedMessage, match=vector["match"]):
        from_wire("share", row, raw, 1)

"""The wire format of pairwise masks is pinned, so that another implementation can interoperate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privacy import errors
from privacy.canonical import canonical_bytes
from privacy.identity import SealingKey, SigningKey
from privacy.ids import SiloId
from privacy.sealing import SEALED_OVERHEAD_BYTES, unseal
from privacy.secagg.pairwise import shamir
from privacy.secagg.pairwise.masks import (
    agree,
    key_set_digest,
    own_mask,
    pair_mask,
    sealing_info,
    seed_commitment,
    share_commitment,
)
from privacy.secagg.pairwise.messages import (
    KINDS,
    SEALED_PAIR_BYTES,
    KeyAdvert,
    ShareBundle,
    open_from_silo,
    sign,
)
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.wire.envelope import parse_envelope

VECTORS = Path(__file__).parents[2] / "vectors"
GOOD: dict[str, Any] = json.loads((VECTORS / "pairwise.json").read_text())
BAD: dict[str, Any] = json.loads((VECTORS / "bad_pairwise.json").read_text())
TERMS = PairwiseTerms.model_validate(GOOD["terms"])
MODELS = {kind: model for model, kind in KINDS.items()}
A, B = SiloId("bank-a"), SiloId("bank-b")


def secret(silo: str, name: str) -> bytes:
    return bytes.fromhex(GOOD["secrets"][silo][name])


def test_adverts_terms_and_the_key_set_digest_are_pinned() -> None:
    digests = {}
    for silo in TERMS.verify_keys:
        signer = SigningKey(Ed25519PrivateKey.from_private_bytes(secret(silo, "identity")))
        assert TERMS.verify_keys[silo] == signer.verify_key
        private = X25519PrivateKey.from_private_bytes(secret(silo, "mask"))
        advert = KeyAdvert(
            sealing_key=SealingKey.from_bytes(secret(silo, "sealing")).public_hex,
            mask_key=private.public_key().public_bytes_raw().hex(),
            seed_commitment=seed_commitment(TERMS.context, silo, secret(silo, "seed")),
        )
        digests[silo] = sign(advert, TERMS, silo, signer).body_digest
    assert TERMS.digest == GOOD["terms_digest"]
    assert digests == GOOD["advert_bodies"]
    assert key_set_digest(TERMS, digests) == GOOD["key_set"]


def test_every_field_of_the_terms_and_every_advert_enters_the_key_set_digest() -> None:
    digests = dict(GOOD["advert_bodies"])
    seen = {key_set_digest(TERMS, digests)}
    for change in (
        {"context": "12" * 32},
        {"model": "23" * 32},
        {"server": "other"},
        {"cohort": TERMS.cohort[:2]},
        {"vector_length": 8},
        {"threshold": 3},
        {"minimum": 2},
    ):
        seen.add(
            key_set_digest(PairwiseTerms.model_validate({**GOOD["terms"], "minimum": 2, **change}), digests)
        )
    for silo in digests:
        seen.add(key_set_digest(TERMS, {**digests, silo: "00" * 32}))
        seen.add(key_set_digest(TERMS, {other: digests[other] for other in digests if other != silo}))
    assert len(seen) == 1 + 7 + 6


def test_shamir_shares_are_pinned() -> None:
    vector = GOOD["shamir"]
    coefficients = [int(vector["secret"], 16), *(int(each) for each in vector["coefficients"])]
    shares = {int(index): bytes.fromhex(share) for index, share in vector["shares"].items()}
    assert shamir.evaluate(coefficients, shares) == shares
    assert shamir.rebuild({3: shares[3], 1: shares[1]}, vector["threshold"]).hex() == vector["secret"]


def test_a_pinned_bundle_opens_to_the_pinned_shares() -> None:
    vector, key_set = GOOD["sealed"], GOOD["key_set"]
    bundle = open_from_silo(
        parse_envelope(GOOD["messages"][1]["envelope"].encode()), ShareBundle, TERMS, B
    ).message
    info = sealing_info(TERMS.context, key_set, A, B)
    assert info.hex() == vector["info"]
    opened = unseal(bytes.fromhex(bundle.sealed), SealingKey.from_bytes(secret(B, "sealing")), info)
    assert opened.hex() == vector["key_share"] + vector["seed_share"]
    for of, digest in (("key", bundle.key_commitment), ("seed", bundle.seed_commitment)):
        share = bytes.fromhex(vector[f"{of}_share"])
        assert share_commitment(key_set, of, A, B, share) == digest  # type: ignore[arg-type]
    assert SEALED_PAIR_BYTES == SEALED_OVERHEAD_BYTES + 2 * shamir.SHARE_BYTES


def test_masks_are_pinned_and_a_pair_of_them_cancels() -> None:
    bound = (GOOD["key_set"], TERMS.context, TERMS.model)
    private = X25519PrivateKey.from_private_bytes(secret(B, "mask"))
    mask_key = X25519PrivateKey.from_private_bytes(secret(A, "mask")).public_key().public_bytes_raw().hex()
    shared = agree(private, A, mask_key)
    assert shared.hex() == GOOD["shared_secret"]
    made = {
        "own bank-a": own_mask(secret(A, "seed"), *bound, A),
        "bank-a with bank-b": pair_mask(shared, *bound, A, B),
        "bank-b with bank-a": pair_mask(shared, *bound, B, A),
    }
    for case in GOOD["masks"]:
        for start, expected in case["elements"].items():
            elements = np.zeros(4, dtype="<u4")
            made[case["of"]].apply(int(start), elements)
            assert elements.tobytes().hex() == expected, case["of"]
            made[case["of"]].inverse().apply(int(start), elements)
            assert not elements.any()


@pytest.mark.parametrize("case", GOOD["messages"], ids=lambda case: case["kind"])
def test_a_pinned_message_is_read_and_signed_again_to_the_same_bytes(case: dict[str, str]) -> None:
    model = MODELS[case["kind"]]  # type: ignore[index]
    raw = case["envelope"].encode()
    message = open_from_silo(parse_envelope(raw), model, TERMS, case["recipient"]).message  # type: ignore[type-var,arg-type]
    signer = SigningKey(Ed25519PrivateKey.from_private_bytes(secret(A, "identity")))
    assert canonical_bytes(sign(message, TERMS, A, signer, case["recipient"])) == raw  # type: ignore[arg-type]


@pytest.mark.parametrize("case", BAD["cases"], ids=lambda case: case["why"])
def test_a_pinned_bad_message_is_refused_by_name(case: dict[str, str]) -> None:
    terms = PairwiseTerms.model_validate(BAD["terms"])
    model = MODELS[case["kind"]]  # type: ignore[index]
    with pytest.raises(getattr(errors, case["error"]), match=case["match"]):
        open_from_silo(parse_envelope(case["envelope"].encode()), model, terms, case["recipient"])  # type: ignore[type-var,arg-type]

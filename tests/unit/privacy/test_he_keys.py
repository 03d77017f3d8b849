"""A key opens for one silo, in one federation, in one epoch; servers never have it."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from privacy.errors import MalformedMessage, NotAllowed, OutOfOrder, PeerFault, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import SiloId
from privacy.sealing import seal
from privacy.secagg.he import keys
from privacy.secagg.he.keys import make_key, restore_key, unwrap_key, wrap_key
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.sum_half import HeSumHalf
from tests.he_cohort import KEYS, USES, silo_half

BFV = "bfv-2048-40"
USE, KEY = USES[BFV], KEYS[BFV]
A, B, C = SiloId("a"), SiloId("b"), SiloId("c")
SEALING = {silo: SealingKey.generate() for silo in (B, C)}
WRAPPED = wrap_key(KEY, A, B, SEALING[B].public_hex)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_wrapped_key_opens_as_the_same_key(name: str) -> None:
    wrapped = wrap_key(KEYS[name], A, B, SEALING[B].public_hex)
    assert unwrap_key(wrapped, USES[name], A, B, SEALING[B]) == KEYS[name]


def test_keys_are_fresh() -> None:
    assert len({make_key(USE).id for _ in range(3)}) == 3


def test_another_silo_cannot_open_it() -> None:
    with pytest.raises(MalformedMessage, match="does not open with this key"):
        unwrap_key(WRAPPED, USE, A, B, SEALING[C])


@pytest.mark.parametrize(
    ("change", "refusal", "sentence"),
    [
        ({"epoch": 2}, OutOfOrder, "expected epoch 1 of hearts"),
        ({"federation": "lungs"}, OutOfOrder, "got epoch 1 of lungs"),
        ({"parameters": "bfv-2048-54"}, OutOfOrder, "expected bfv-2048-40"),
        ({"parameters": "bfv-1024-27"}, Unprocessable, "expected one of"),
        ({"maker": "c"}, NotAllowed, "expected one from a to b"),
        ({"silo": "c"}, NotAllowed, "expected one from a to b"),
        ({"key": "66" * 32}, MalformedMessage, "does not open"),
        ({"sealed": "!"}, MalformedMessage, "expected base64"),
        ({"sealed": ""}, MalformedMessage, "does not open"),
    ],
)
def test_a_wrapped_key_with_one_field_changed_is_refused(
    change: dict[str, object], refusal: type[PeerFault], sentence: str
) -> None:
    with pytest.raises(refusal, match=sentence):
        unwrap_key(WRAPPED.model_copy(update=change), USE, A, B, SEALING[B])


@pytest.mark.parametrize("what", ["epoch", "federation", "maker"])
def test_what_was_sealed_for_one_use_does_not_open_when_all_claim_another(what: str) -> None:
    use = replace(USE, epoch=2) if what == "epoch" else replace(USE, federation="lungs")
    use, maker = (USE, C) if what == "maker" else (use, A)
    forged = WRAPPED.model_copy(update={"epoch": use.epoch, "federation": use.federation, "maker": maker})
    with pytest.raises(MalformedMessage, match="does not open with this key and context"):
        unwrap_key(forged, use, maker, B, SEALING[B])


def test_a_maker_cannot_announce_one_key_and_seal_another() -> None:
    other = make_key(USE)
    sealed = seal(other.secret, SEALING[B].public_hex, keys._binding(USE, A, B, KEY.id))
    with pytest.raises(MalformedMessage, match="not the id of the sealed key"):
        unwrap_key(
            WRAPPED.model_copy(update={"sealed": base64.b64encode(sealed).decode()}), USE, A, B, SEALING[B]
        )


@pytest.mark.parametrize("secret", [b"", b"\0" * 100, KEYS["ckks-4096-36"].secret])
def test_what_is_no_secret_key_of_the_row_is_refused(secret: bytes) -> None:
    with pytest.raises(MalformedMessage, match=r"he\.secret: expected 10240 bytes under bfv-2048-40"):
        restore_key(USE, secret)


def test_secrets_do_not_print() -> None:
    assert repr(KEY) == f"HeKey(id='{KEY.id}')"
    half = silo_half(BFV, 4, 2)
    for shown in (repr(half), repr(half._cipher), repr(KEY.cipher(2)), repr(HeSumHalf(BFV, 2)), str(KEY)):
        assert KEY.secret.hex()[:32] not in shown
        assert repr(KEY.secret[:16])[2:-1] not in shown

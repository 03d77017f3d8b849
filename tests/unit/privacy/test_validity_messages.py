"""What travels is frozen, complete and canonical."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from privacy.canonical import canonical_bytes, parse_canonical
from privacy.chain import EMPTY
from privacy.ids import Digest, ServerId, SiloId
from privacy.secagg.validity.messages import (
    CheckManifest,
    CoinCommitment,
    CoinReveal,
    ProofManifest,
    SharesManifest,
    SiloVerdict,
    Verdicts,
    checks_digest,
    frozen_digest,
)

D, SILO, SERVER = Digest("ab" * 32), SiloId("cleveland"), ServerId("share-a")
MESSAGES: list[BaseModel] = [
    SharesManifest(
        silo=SILO, terms=D, model=D, vector_length=11, parts=(D,), seeds={SERVER: D}, ledger_head=EMPTY
    ),
    CoinCommitment(server=SERVER, step=1, frozen=D, commitment=D),
    CoinReveal(server=SERVER, step=2, frozen=D, value=D),
    ProofManifest(silo=SILO, shares=D, coin=D, witness=D),
    CheckManifest(server=SERVER, silo=SILO, proof=D, coin=D, check=D),
    SiloVerdict(silo=SILO, check=D, failed="norm"),
    Verdicts(server=SERVER, coin=D, verdicts=(SiloVerdict(silo=SILO, check=D, failed=None),)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_from_its_canonical_bytes(message: BaseModel) -> None:
    raw = canonical_bytes(message)
    body = parse_canonical(raw, 10_000)
    assert type(message).model_validate(body) == message
    with pytest.raises(ValidationError, match="extra"):
        type(message).model_validate({**body, "more": 1})
    for name in body:
        if name != "failed":
            with pytest.raises(ValidationError):
                type(message).model_validate({**body, name: "?"})


def test_what_a_coin_is_tossed_over_names_every_silo_and_manifest() -> None:
    one = {SILO: D}
    assert frozen_digest(one) != frozen_digest({SILO: Digest("cd" * 32)})
    assert frozen_digest(one) != frozen_digest({SiloId("hungary"): D})
    assert frozen_digest(one) != frozen_digest({**one, SiloId("hungary"): D})


def test_what_was_judged_names_every_servers_check() -> None:
    one = {SERVER: D}
    assert checks_digest(one) != checks_digest({SERVER: Digest("cd" * 32)})
    assert checks_digest(one) != checks_digest({ServerId("share-b"): D})

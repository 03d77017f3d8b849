"""What every party works out for itself from what the servers signed: who is fixed, which coin was tossed.

Servers, silos and the aggregator call the same functions on messages whose signatures they have checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privacy.errors import Unprocessable
from privacy.ids import Digest, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.coins import Coin, Reveals, Step, Toss, settle
from privacy.secagg.validity.messages import (
    CoinCommitment,
    CoinReveal,
    ProofManifest,
    Verdicts,
    frozen_digest,
)
from privacy.wire.envelope import Verified


def toss_over(plan: RoundPlan, step: Step, fixed: Mapping[SiloId, Digest]) -> Toss:
    """The toss of a step by the plan's servers over what is fixed: silo → digest of its manifest.

    Step 1: the shares' manifests that every server accepted. Step 2: the manifests of the proofs.

    Raises:
        Unprocessable: nothing is fixed, so there is nothing to toss for.
    """
    if not fixed:
        what = "whose shares every server accepted" if step == 1 else "that has proven"
        raise Unprocessable(f"coin {step}: expected at least one silo {what}")
    return Toss(plan.context, step, frozen_digest(fixed), tuple(slot.server for slot in plan.servers))


def assert_about(toss: Toss, messages: Sequence[CoinCommitment | CoinReveal]) -> None:
    """Refuse a word about another toss: a coin is worth something for what was fixed before it only.

    Raises:
        Unprocessable: another step, or other silos or manifests, naming the server.
    """
    for said in messages:
        if (said.step, said.frozen) != (toss.step, toss.frozen):
            raise Unprocessable(
                f"coin {toss.step}: {said.server} speaks of another toss than that over {toss.frozen[:16]}…"
            )


def settled(toss: Toss, commitments: Sequence[CoinCommitment], reveals: Sequence[CoinReveal]) -> Coin:
    """The coin of a toss, from one commitment and one reveal of each server.

    Raises:
        Unprocessable: a message is about another toss, or reveals what was not committed to.
        OutOfOrder: a server has not spoken.
    """
    assert_about(toss, [*commitments, *reveals])
    return settle(
        toss,
        Reveals(
            {said.server: said.commitment for said in commitments},
            {said.server: bytes.fromhex(said.value) for said in reveals},
        ),
    )


def assert_proof_fits(
    proof: Verified[ProofManifest], candidates: Mapping[SiloId, Digest], coin: Coin
) -> None:
    """Whether a proof is a candidate's own, about the shares it is fixed by, and answers coin 1.

    Raises:
        Unprocessable: it is not.
    """
    body = proof.message
    if body.silo != proof.sender:
        raise Unprocessable(f"proof: expected one of {proof.sender}, who signed, got one of {body.silo}")
    if candidates.get(body.silo) != body.shares:
        raise Unprocessable(f"proof of {body.silo}: it is about other shares than servers accepted")
    if body.coin != coin.digest:
        raise Unprocessable(f"proof of {body.silo}: it answers another coin than this round's")


def passed_everywhere(
    verdicts: Sequence[Verdicts], candidates: Mapping[SiloId, Digest]
) -> dict[SiloId, Digest]:
    """Silos that no server's check fails: silo → digest of its shares' manifest, sorted.

    (1) All servers judged by the same coin, about the same silos and the same checks: else one of them told
    others different things. (2) Each silo is a candidate.

    Raises:
        Unprocessable: (1), (2).
    """
    first = verdicts[0]
    judged = {one.silo: one.check for one in first.verdicts}
    for said in verdicts:
        if said.coin != first.coin or {one.silo: one.check for one in said.verdicts} != judged:  # (1)
            raise Unprocessable(
                f"verdicts: {said.server} and {first.server} judged by different coins or checks; "
                "some server told them different things"
            )
    strangers = sorted(set(judged) - set(candidates))
    if strangers:  # (2)
        raise Unprocessable(f"verdicts: expected silos with shares only, got {', '.join(strangers)}")
    failed = {one.silo for said in verdicts for one in said.verdicts if one.failed is not None}
    return {silo: candidates[silo] for silo in sorted(judged) if silo not in failed}

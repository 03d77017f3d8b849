"""Attacks on share servers in rounds with validity, played by hand as the aggregator, a server or a silo.

Each is refused with its reason. What is at stake: a server that tosses twice, or reveals before all are
bound, lets somebody choose the coin; one that speaks twice about a silo shows its rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

from policies.findings import PolicyRefusal
from policies.gates import admit_plan
from policies.loader import load_threat_model
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.ids import Digest, PartyId, SiloId
from privacy.keystore import FederationPin, Identity
from privacy.plan import ValidityClaim, VectorTerms
from privacy.secagg.validity.coins import Coin, Reveals, Toss, settle
from privacy.secagg.validity.encoding import from_ring
from privacy.secagg.validity.field import to_bytes
from privacy.secagg.validity.messages import (
    CheckManifest,
    CoinCommitment,
    CoinReveal,
    ProofManifest,
    Verdicts,
)
from privacy.wire.envelope import Envelope, parse_envelope, parse_envelopes
from privacy.wire.messages import AcceptedSet
from silo_agent.delivery import Delivery
from silo_agent.encoded import EncodedUpdate
from silo_agent.participation import open_offer
from silo_agent.schemes.half import Seat, Signed
from silo_agent.schemes.validity import ValidityHalf
from silo_agent.update import FloatUpdate
from tests.aggregator_world import World, content_digest, on_loop
from tests.federation import AGGREGATOR, SESSION

SERVERS = ("server-0", "server-1")
SIZE = 60


class Proving:
    """One silo by hand: its shares, and later its proof."""

    def __init__(self, table: Table, name: str) -> None:
        self.table, self.name = table, name
        federation = table.federation
        pin = FederationPin(
            federation=federation.name,
            party=PartyId(name),
            role="silo",
            officers=federation.officers.digest,
        )
        self.half = ValidityHalf(
            Seat(
                plan=table.plan,
                silo=SiloId(PartyId(name)),
                aggregator=AGGREGATOR,
                identity=Identity(Path("none"), pin, federation.key(name), None),
                charter=federation.charter,
                policies=(),
                delivery=cast(Delivery, None),
                directory=Path("none"),
            )
        )
        update = EncodedUpdate(table.plan, FloatUpdate(np.full(SIZE, 0.1, dtype=np.float32)), 1.0)
        self.parts = list(self.half.seal(update, table.plan.model))
        self.signed: Signed = self.half.manifest(EMPTY)

    def proof(self, coin: Coin) -> tuple[bytes, Envelope]:
        """Its witness and manifest for a coin."""
        half = self.half._half
        assert half is not None
        half.open_coin(coin)
        half.project(0, from_ring(self.half._encoded[0]))
        witness = to_bytes(half.prove())
        message = ProofManifest(
            silo=SiloId(PartyId(self.name)),
            shares=self.signed.manifest.body_digest,
            coin=coin.digest,
            witness=sha256_hex(witness),
        )
        return witness, self.half._sign(message, "validity_proof")


class Table:
    """One round with validity at both share servers."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        self.world = World(root)
        self.federation = self.world.federation
        self.spec = self.federation.job_spec(parameters=SIZE, validity=ValidityClaim(norm_bound=2.0))
        self.plan = self.federation.plan(self.spec, validity=self.spec.validity, **changes)
        self.clients = self.world.to_servers("aggregator")

    @property
    def ctx(self) -> str:
        return self.plan.context

    async def post(self, server: str, call: str, envelopes: list[Envelope]) -> httpx.Response:
        """A call of the aggregator about this round."""
        body = canonical_bytes([one.model_dump(mode="json") for one in envelopes])
        return await self.clients[server].post(f"/v1/rounds/{self.ctx}/{call}", content=body)

    async def all(self, call: str, envelopes: list[Envelope]) -> list[Envelope]:
        """The same call to both servers, which answer."""
        answers = [await self.post(server, call, envelopes) for server in SERVERS]
        for answer in answers:
            assert answer.is_success, answer.text
        return [parse_envelope(answer.content) for answer in answers if answer.content]

    async def offered(self) -> None:
        offer = self.federation.offer(self.plan, self.federation.sign_job(self.spec))
        for server in SERVERS:
            answer = await self.clients[server].post("/v1/rounds", content=canonical_bytes(offer))
            assert answer.status_code == 201, answer.text

    async def send(self, silo: Proving, parts: list[bytes] | None = None) -> list[httpx.Response]:
        """A silo's shares to both servers."""
        clients = self.world.to_servers(silo.name)
        for index, part in enumerate(silo.parts if parts is None else parts):
            path = f"/v1/rounds/{self.ctx}/parts/{index}"
            answer = await clients["server-0"].put(path, content=part, headers=content_digest(part))
            assert answer.is_success, answer.text
        return [
            await clients[server].post(
                f"/v1/rounds/{self.ctx}/manifests",
                content=canonical_bytes(
                    {
                        "manifest": silo.signed.manifest.model_dump(mode="json"),
                        "sealed_seed": silo.signed.seeds[server],
                    }
                ),
            )
            for server in SERVERS
        ]

    async def to_frozen(self) -> None:
        """Played honestly until shares are frozen; ``accepted`` holds the sets."""
        await self.offered()
        self.silos = [Proving(self, name) for name in self.plan.silos]
        for silo in self.silos:
            assert all(answer.is_success for answer in await self.send(silo))
        self.accepted = [
            parse_envelope((await self.clients[server].post(f"/v1/rounds/{self.ctx}/close")).content)
            for server in SERVERS
        ]

    async def to_committed(self) -> list[Envelope]:
        """Until both have committed to coin 1."""
        await self.to_frozen()
        return await self.all("coins/shares/commit", self.accepted)

    async def to_proving(self) -> Coin:
        """Until coin 1 is settled."""
        committed = await self.to_committed()
        revealed = await self.all("coins/shares/reveal", committed)
        await self.all("coins/shares/settle", revealed)
        return _coin(committed, revealed)

    async def prove(
        self, silo: Proving, witness: bytes, proof: Envelope, server: str = "server-0"
    ) -> httpx.Response:
        """What a silo does to prove; the answer to the first call that fails, or to the last."""
        client = self.world.as_party(silo.name, server)
        path = f"/v1/rounds/{self.ctx}/witness"
        answer = await client.put(path, content=witness, headers=content_digest(witness))
        if not answer.is_success:
            return answer
        return await client.post(f"/v1/rounds/{self.ctx}/proofs", content=canonical_bytes(proof))

    async def to_proven(self) -> list[Envelope]:
        """Until every silo has proven and proofs are frozen."""
        coin = await self.to_proving()
        for silo in self.silos:
            assert (await self.prove(silo, *silo.proof(coin))).is_success
        answer = await self.clients["server-0"].post(f"/v1/rounds/{self.ctx}/proofs/close")
        return list(parse_envelopes(answer.content))

    async def to_checking(self) -> None:
        """Until coin 2 is settled."""
        proofs = await self.to_proven()
        committed = await self.all("coins/proofs/commit", proofs)
        await self.all("coins/proofs/settle", await self.all("coins/proofs/reveal", committed))

    async def to_checked(self) -> list[Envelope]:
        """Until both servers have every check of the other; the checks."""
        await self.to_checking()
        checks = []
        for silo in self.plan.silos:
            path = f"/v1/rounds/{self.ctx}/checks/{silo}"
            checks += [parse_envelope((await self.clients[server].post(path)).content) for server in SERVERS]
            raw = {server: (await self.clients[server].get(path)).content for server in SERVERS}
            for to, of in (SERVERS, SERVERS[::-1]):
                answer = await self.clients[to].put(
                    f"{path}/{of}", content=raw[of], headers=content_digest(raw[of])
                )
                assert answer.is_success, answer.text
        return checks

    def colluding(self, envelope: Envelope, **changes: Any) -> Envelope:
        """A server signs other words."""
        models = {"coin1_commitment": CoinCommitment, "coin1_reveal": CoinReveal, "accepted": AcceptedSet}
        model = models.get(envelope.kind, CheckManifest)
        message = model.model_validate({**json.loads(envelope.body), **changes})
        return self.federation.sign(message, envelope.kind, self.plan.context, envelope.sender)


def _coin(committed: list[Envelope], revealed: list[Envelope]) -> Coin:
    """Coin 1, as a silo settles it."""
    commitments = [CoinCommitment.model_validate_json(one.body) for one in committed]
    values = [CoinReveal.model_validate_json(one.body) for one in revealed]
    toss = Toss(
        committed[0].context,  # type: ignore[arg-type]  # a digest is one
        1,
        commitments[0].frozen,
        tuple(one.server for one in commitments),
    )
    return settle(
        toss,
        Reveals(
            {one.server: one.commitment for one in commitments},
            {one.server: bytes.fromhex(one.value) for one in values},
        ),
    )


def _expect(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    for word in words:
        assert word in answer.json()["detail"]


# --- coins ---


@on_loop
async def test_a_server_reveals_only_against_the_commitments_of_all(tmp_path: Path) -> None:
    table = Table(tmp_path)
    ours, theirs = await table.to_committed()
    _expect(await table.post("server-0", "coins/shares/reveal", [ours]), 422, "missing: server-1")
    forged = ours.model_copy(update={"sender": "server-1"})
    _expect(await table.post("server-0", "coins/shares/reveal", [ours, forged]), 401)
    other = table.colluding(ours, commitment="ab" * 32)
    _expect(
        await table.post("server-0", "coins/shares/reveal", [other, theirs]), 409, "another one came first"
    )
    stale = table.colluding(theirs, frozen="ab" * 32)
    _expect(await table.post("server-0", "coins/shares/reveal", [ours, stale]), 422, "another toss")
    assert (await table.post("server-0", "coins/shares/reveal", [ours, theirs])).is_success


@on_loop
async def test_a_server_reveals_for_the_first_commitments_only(tmp_path: Path) -> None:
    """A colluding server that could commit anew after it saw our value would choose the coin."""
    table = Table(tmp_path)
    ours, theirs = await table.to_committed()
    first = await table.post("server-0", "coins/shares/reveal", [ours, theirs])
    again = table.colluding(theirs, commitment="ab" * 32)
    _expect(await table.post("server-0", "coins/shares/reveal", [ours, again]), 409, "another one came first")
    assert (await table.post("server-0", "coins/shares/reveal", [ours, theirs])).content == first.content


@on_loop
async def test_a_second_toss_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    table = Table(tmp_path)
    ours, _ = await table.to_committed()
    mine, theirs = table.accepted
    fewer = dict(list(json.loads(theirs.body)["manifests"].items())[:3])
    other = table.colluding(theirs, manifests=fewer)
    for _ in range(2):
        answer = await table.post("server-0", "coins/shares/commit", [mine, other])
        _expect(answer, 409, "another one came first")
        again = await table.post("server-0", "coins/shares/commit", [mine, theirs])
        assert parse_envelope(again.content) == ours
        table.world.start_server("server-0")
        table.clients = table.world.to_servers("aggregator")


@on_loop
async def test_a_value_is_taken_once_and_only_the_committed_one(tmp_path: Path) -> None:
    table = Table(tmp_path)
    committed = await table.to_committed()
    ours, theirs = await table.all("coins/shares/reveal", committed)
    other = table.colluding(theirs, value="ab" * 32)
    _expect(
        await table.post("server-0", "coins/shares/settle", [ours, other]),
        422,
        "server-1 revealed another value",
    )
    assert (await table.post("server-0", "coins/shares/settle", [ours, theirs])).is_success
    _expect(await table.post("server-0", "coins/shares/settle", [ours, other]), 409, "another one came first")


@on_loop
async def test_steps_cannot_be_skipped(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.to_frozen()
    for call in ("coins/shares/reveal", "coins/shares/settle", "coins/proofs/commit", "judge"):
        assert (await table.post("server-0", call, table.accepted)).status_code in (401, 409, 422)
    # An aggregator that would rather sum without proofs:
    _expect(await table.post("server-0", "agree", table.accepted), 401, "expected validity_verdict")
    ours, theirs = await table.all("coins/shares/commit", table.accepted)
    _expect(await table.post("server-0", "coins/shares/settle", [ours, theirs]), 401)
    check = await table.clients["server-0"].post(f"/v1/rounds/{table.ctx}/checks/silo-1")
    _expect(check, 409, "check cannot follow")


@on_loop
async def test_a_round_without_validity_tosses_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.spec = table.federation.job_spec(parameters=SIZE)
    table.plan = table.federation.plan(table.spec)
    await table.offered()
    accepted = [
        parse_envelope((await table.clients[server].post(f"/v1/rounds/{table.ctx}/close")).content)
        for server in SERVERS
    ]
    _expect(await table.post("server-0", "coins/shares/commit", accepted), 422, "claims no validity")
    _expect(await table.clients["server-0"].post(f"/v1/rounds/{table.ctx}/proofs/close"), 422, "no validity")


# --- silos ---


@on_loop
async def test_shares_of_no_field_elements_cost_their_own_silo_only(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offered()
    silo = Proving(table, "silo-1")
    parts = [b"\xff" * 8 + silo.parts[0][8:]]
    silo.half._digests = [sha256_hex(parts[0])]
    silo.signed = silo.half.manifest(EMPTY)  # signed over the bytes that are sent
    answers = await table.send(silo, parts)
    _expect(answers[0], 400, "below 2^64")


@on_loop
async def test_the_first_server_takes_no_shares_without_a_seed_that_opens(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offered()
    silo, other = Proving(table, "silo-1"), Proving(table, "silo-2")
    silo.signed.seeds["server-0"] = other.signed.seeds["server-0"]
    answers = await table.send(silo)
    _expect(answers[0], 422, "not the one the manifest names")
    assert answers[1].is_success


@on_loop
async def test_only_the_first_server_takes_a_witness_of_the_right_size_from_a_candidate(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path)
    coin = await table.to_proving()
    silo = table.silos[0]
    witness, proof = silo.proof(coin)
    _expect(await table.prove(silo, witness, proof, "server-1"), 422, "goes to server-0")
    _expect(await table.prove(silo, witness + b"\x00" * 8, proof), 413)
    _expect(await table.prove(silo, witness[:-8], proof), 422)
    _expect(await table.prove(table.silos[1], witness, proof), 403, "expected it from silo-2")
    assert (await table.prove(silo, witness, proof)).is_success
    _expect(await table.prove(silo, witness[:-1] + b"\x01", proof), 409, "other bytes came first")
    again = table.federation.sign(
        ProofManifest.model_validate_json(proof.body).model_copy(update={"witness": Digest("ab" * 32)}),
        "validity_proof",
        table.plan.context,
        "silo-1",
    )
    assert (await table.prove(silo, witness, again)).status_code in (409, 422)


@on_loop
async def test_a_late_proof_is_no_proof(tmp_path: Path) -> None:
    """Coin 2 is tossed over what was frozen: a witness made after it would be made to fit."""
    table = Table(tmp_path)
    coin = await table.to_proving()
    await table.clients["server-0"].post(f"/v1/rounds/{table.ctx}/proofs/close")
    silo = table.silos[0]
    _expect(await table.prove(silo, *silo.proof(coin)), 409, "witness cannot follow in phase proven")


# --- proofs and checks ---


@on_loop
async def test_what_coin_2_is_tossed_over_is_exactly_what_was_frozen(tmp_path: Path) -> None:
    table = Table(tmp_path)
    proofs = await table.to_proven()
    _expect(await table.post("server-0", "coins/proofs/commit", proofs[:-1]), 409, "other ones are fixed")
    _expect(
        await table.post("server-1", "coins/proofs/commit", [*proofs, proofs[0]]), 422, "one of each silo"
    )
    altered = proofs[0].model_copy(update={"sender": "silo-2"})
    _expect(await table.post("server-1", "coins/proofs/commit", [altered, *proofs[1:]]), 401)
    await table.all("coins/proofs/commit", proofs)
    _expect(await table.post("server-1", "coins/proofs/commit", proofs[:-1]), 409, "other ones are fixed")


@on_loop
async def test_servers_that_were_shown_other_proofs_never_settle_a_coin(tmp_path: Path) -> None:
    table = Table(tmp_path)
    proofs = await table.to_proven()
    ours = parse_envelope((await table.post("server-0", "coins/proofs/commit", proofs)).content)
    theirs = parse_envelope((await table.post("server-1", "coins/proofs/commit", proofs[:-1])).content)
    _expect(
        await table.post("server-0", "coins/proofs/reveal", [ours, theirs]), 422, "server-1 speaks of another"
    )
    _expect(
        await table.post("server-1", "coins/proofs/reveal", [ours, theirs]), 422, "server-0 speaks of another"
    )


@on_loop
async def test_a_server_says_one_thing_about_a_silo_also_after_a_restart(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.to_checking()
    path = f"/v1/rounds/{table.ctx}/checks/silo-1"
    first = (await table.clients["server-0"].post(path)).content
    raw = (await table.clients["server-0"].get(path)).content
    table.world.start_server("server-0")
    client = table.world.as_party("aggregator", "server-0")
    assert (await client.post(path)).content == first
    assert (await client.get(path)).content == raw
    _expect(await client.put(f"{path}/server-0", content=raw, headers=content_digest(raw)), 403)
    stranger = await client.post(f"/v1/rounds/{table.ctx}/checks/silo-9")
    _expect(stranger, 404, "there is none in this round")
    silo = table.world.as_party("silo-1", "server-0")
    assert (await silo.get(path)).status_code == 403


@on_loop
async def test_verdicts_rest_on_one_check_of_every_server_as_it_signed_it(tmp_path: Path) -> None:
    table = Table(tmp_path)
    checks = await table.to_checked()
    mine, theirs = checks[:2]
    _expect(await table.post("server-0", "judge", checks[:-1]), 422, "missing: server-1")
    _expect(await table.post("server-0", "judge", [*checks, theirs]), 422, "one of each server")
    for words in ({"proof": "ab" * 32}, {"coin": "ab" * 32}, {"silo": "silo-9"}):
        other = [mine, table.colluding(theirs, **words), *checks[2:]]
        _expect(await table.post("server-0", "judge", other), 422, "by server-1")
    bent = table.colluding(mine, check="ab" * 32)
    _expect(await table.post("server-0", "judge", [bent, *checks[1:]]), 422, "not the one signed here")
    unlike = table.colluding(theirs, check="ab" * 32)
    _expect(await table.post("server-0", "judge", [mine, unlike, *checks[2:]]), 422, "bytes are not the ones")
    verdicts = await table.all("judge", checks)
    _expect(await table.post("server-0", "judge", [mine, unlike, *checks[2:]]), 409, "judged by other checks")
    assert await table.all("judge", checks) == verdicts


@on_loop
async def test_survivors_follow_from_the_verdicts_of_every_server(tmp_path: Path) -> None:
    table = Table(tmp_path)
    verdicts = await table.all("judge", await table.to_checked())
    ours, theirs = verdicts
    _expect(await table.post("server-0", "agree", [ours]), 422, "missing: server-1")
    body = json.loads(ours.body)
    body["verdicts"][0]["failed"] = "norm"
    flipped = _verdicts(table, "server-0", body)
    _expect(await table.post("server-0", "agree", [flipped, theirs]), 422, "the ones that were signed here")
    other = json.loads(theirs.body)
    other["verdicts"][0]["check"] = "ab" * 32
    _expect(
        await table.post("server-0", "agree", [ours, _verdicts(table, "server-1", other)]), 422, "different"
    )
    # A server that fails everybody ends the round; it opens nothing.
    nobody = json.loads(theirs.body)
    for verdict in nobody["verdicts"]:
        verdict["failed"] = "norm"
    _expect(
        await table.post("server-0", "agree", [ours, _verdicts(table, "server-1", nobody)]),
        422,
        "at least one",
    )
    # One that fails one silo leaves it out.
    fewer = json.loads(theirs.body)
    fewer["verdicts"][0]["failed"] = "norm"
    signed = await table.post("server-0", "agree", [ours, _verdicts(table, "server-1", fewer)])
    assert json.loads(parse_envelope(signed.content).body)["survivors"] == ["silo-2", "silo-3", "silo-4"]
    _expect(await table.post("server-0", "agree", verdicts), 409, "has signed another set")


def _verdicts(table: Table, server: str, body: dict[str, Any]) -> Envelope:
    return table.federation.sign(
        Verdicts.model_validate(body), "validity_verdict", table.plan.context, server
    )


# --- the plan ---


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"vector": VectorTerms(coordinate_bound=4.0, scale_bits=25)}, "scale_bits"),
        ({"validity": ValidityClaim(norm_bound=100.0)}, "norm_bound"),
        ({"vector": VectorTerms(coordinate_bound=2.0, scale_bits=20)}, "coordinate_bound"),
    ],
    ids=["scale", "norm", "coordinate"],
)
def test_a_plan_whose_terms_are_not_sound_is_refused_by_name(tmp_path: Path, changes: Any, why: str) -> None:
    federation = World.__dataclass_fields__["federation"].default_factory()  # type: ignore[misc]
    spec = federation.job_spec(**{"parameters": SIZE, "validity": ValidityClaim(norm_bound=2.0), **changes})
    plan = federation.plan(spec, validity=spec.validity, session=SESSION)
    offer, job = open_offer(federation.offer(plan, federation.sign_job(spec)), federation.charter)
    with pytest.raises(PolicyRefusal) as refused:
        admit_plan([load_threat_model(federation.policy_text)], offer, job, federation.charter)
    found = {finding.rule: finding for finding in refused.value.findings}
    assert why in found["validity_terms"].got

"""Attacks on one share server: each is refused with its reason, and none changes what it would release."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.identity import SigningKey
from privacy.ids import PartyId, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import ring_to_bytes
from privacy.transparency.leaf import parse_record
from privacy.wire.envelope import Envelope, parse_envelope, sign_message
from privacy.wire.messages import AcceptedSet, RoundOffer, RoundResult, SurvivorSet
from tests.aggregator_world import World, client_of, content_digest, on_loop, send_share, submission
from tests.federation import SESSION, SharedUpdate

SERVERS = ("server-0", "server-1")


class Table:
    """One round at both share servers, played by hand as the aggregator."""

    def __init__(self, root: Path, size: int = 5, **changes: Any) -> None:
        self.world = World(root)
        self.federation = self.world.federation
        self.spec = self.federation.job_spec(parameters=size)
        self.job = self.federation.sign_job(self.spec)
        self.plan = self.federation.plan(self.spec, **changes)
        self.as_aggregator = self.world.to_servers("aggregator")

    @property
    def ctx(self) -> str:
        return self.plan.context

    async def post(self, server: str, call: str, body: bytes = b"") -> httpx.Response:
        """One of the aggregator's calls about this round."""
        path = f"/v1/rounds/{self.ctx}/{call}" if call else "/v1/rounds"
        return await self.as_aggregator[server].post(path, content=body)

    async def offer(self, plan: RoundPlan | None = None, sender: str = "aggregator") -> list[httpx.Response]:
        """Offer a plan to both servers."""
        envelope = self.federation.offer(plan or self.plan, self.job, sender=sender)
        return [await self.post(server, "", canonical_bytes(envelope)) for server in SERVERS]

    def share(self, silo: str) -> SharedUpdate:
        return self.federation.share(self.plan, silo)

    async def send(self, *silos: str) -> None:
        """Honest shares of these silos to both servers."""
        for silo in silos:
            await send_share(self.world.to_servers(silo), self.share(silo))

    async def close(self) -> list[Envelope]:
        return [parse_envelope((await self.post(server, "close")).content) for server in SERVERS]

    async def agree(self, accepted: list[Envelope]) -> list[httpx.Response]:
        return [await self.post(server, "agree", _listed(accepted)) for server in SERVERS]

    async def release(self, survivors: list[Envelope]) -> list[httpx.Response]:
        return [await self.post(server, "release", _listed(survivors)) for server in SERVERS]

    async def to_agreed(self, *silos: str) -> list[Envelope]:
        """Play honestly up to the signed survivor sets."""
        await self.offer()
        await self.send(*(silos or self.plan.silos))
        return [parse_envelope(answer.content) for answer in await self.agree(await self.close())]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _listed(envelopes: list[Envelope]) -> bytes:
    return canonical_bytes([envelope.model_dump(mode="json") for envelope in envelopes])


def _accepted(table: Table, server: str, silos: dict[str, str]) -> Envelope:
    message = AcceptedSet.model_validate({"server": server, "manifests": silos})
    return table.federation.sign(message, "accepted", table.plan.context, server)


def _expect(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    for word in words:
        assert word in answer.json()["detail"]


@on_loop
async def test_an_honest_round_releases_one_share_each_and_scrubs_them_at_the_end(tmp_path: Path) -> None:
    table = Table(tmp_path)
    survivors = await table.to_agreed()
    assert [answer.status_code for answer in await table.release(survivors)] == [200, 200]
    result = table.federation.sign(
        RoundResult(
            outcome="opened",
            reason="done",
            survivors=table.plan.silos,
            model_in=table.plan.model,
            model_out=table.plan.model,
            openings=1,
            job_state="running",
        ),
        "result",
        table.plan.context,
        "aggregator",
    )
    for server in SERVERS:
        assert (await table.post(server, "finish", canonical_bytes(result))).status_code == 204
        assert (await table.post(server, "finish", canonical_bytes(result))).status_code == 204
        assert not _files(tmp_path / server / "parts")
        assert not _files(tmp_path / server / "opening")
        gone = await table.as_aggregator[server].get(f"/v1/rounds/{table.ctx}/opening/0")
        _expect(gone, 409, "fetch cannot follow in phase finished")


@on_loop
async def test_a_release_repeats_itself_and_takes_only_what_every_server_signed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    survivors = await table.to_agreed()
    first = await table.release(survivors)
    assert [answer.content for answer in await table.release(survivors)] == [a.content for a in first]
    _expect(await table.post("server-0", "release", _listed([survivors[0]])), 422, "missing: server-1")
    body = survivors[1].body.replace('"silo-4"', '"silo-9"')
    altered = survivors[1].model_copy(update={"body": body})
    _expect(await table.post("server-0", "release", _listed([survivors[0], altered])), 401, "signature")
    invented = _accepted(table, "server-0", dict.fromkeys(table.plan.silos[:3], "0" * 64))
    theirs = _accepted(table, "server-1", dict.fromkeys(table.plan.silos[:3], "0" * 64))
    again = await table.post("server-0", "agree", _listed([invented, theirs]))
    _expect(again, 422, "expected the set that was frozen here")


@on_loop
async def test_once_released_for_one_set_no_other_set_is_released_even_if_all_servers_sign_it(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path)
    survivors = await table.to_agreed()
    await table.release(survivors)
    fewer = []
    for server, envelope in zip(SERVERS, survivors, strict=True):
        message = _model(envelope)
        message = message.model_copy(
            update={"survivors": message.survivors[:3], "manifests": message.manifests[:3]}
        )
        fewer.append(table.federation.sign(message, "survivors", table.plan.context, server))
    for answer in await table.release(fewer):
        _expect(answer, 409, "has been released for other survivors")


def _model(envelope: Envelope) -> Any:
    return SurvivorSet.model_validate_json(envelope.body)


@on_loop
async def test_below_the_minimum_no_server_signs_survivors(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    await table.send("silo-1", "silo-2")
    for answer in await table.agree(await table.close()):
        _expect(answer, 422, "refused by")
        assert answer.json()["type"] == "urn:sealsum:policy-refusal"
    _expect(await table.post("server-0", "release", _listed([])), 422, "missing")


@on_loop
async def test_a_server_does_not_believe_the_others_about_who_was_accepted(tmp_path: Path) -> None:
    """server-1 claims three silos that server-0 never got a share of."""
    table = Table(tmp_path)
    await table.offer()
    await table.send("silo-1")
    ours = (await table.close())[0]
    inflated = _accepted(table, "server-1", dict.fromkeys(table.plan.silos, "0" * 64))
    answer = await table.post("server-0", "agree", _listed([ours, inflated]))
    assert answer.status_code == 422


@on_loop
async def test_a_replayed_round_and_an_earlier_round_are_refused(tmp_path: Path) -> None:
    table = Table(tmp_path, round_number=2)
    assert [answer.status_code for answer in await table.offer()] == [201, 201]
    assert [answer.status_code for answer in await table.offer()] == [200, 200]
    again = table.federation.plan(table.spec, 2, session="f" * 32)
    for answer in await table.offer(again):
        _expect(answer, 409, "expected more than 2")
    for answer in await table.offer(table.federation.plan(table.spec, 1)):
        _expect(answer, 409, "expected more than 2")
    table.world.start_server("server-0")
    table.as_aggregator = table.world.to_servers("aggregator")
    _expect((await table.offer(again))[0], 409, "expected more than 2")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 9}, "rounds"),
        ({"min_survivors": 2}, "min_survivors"),
        ({"parameters": 4}, "parameters"),
        ({"policy": "0" * 64}, "policy"),
        ({"dp": None}, "dp"),
    ],
)
@on_loop
async def test_an_altered_plan_is_refused_by_the_servers_own_gate(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    table = Table(tmp_path, **changes)
    for answer in await table.offer():
        _expect(answer, 422, words)
    _expect(await table.post("server-0", "close"), 404)


@on_loop
async def test_an_offer_under_another_context_or_by_another_signer_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    _expect((await table.offer(sender="researcher"))[0], 403, "got researcher")
    message = RoundOffer.model_validate_json(table.federation.offer(table.plan, table.job).body)
    elsewhere = table.federation.plan(table.spec, session="e" * 32).context
    moved = table.federation.sign(message, "offer", elsewhere, "aggregator")
    _expect(await table.post("server-0", "", canonical_bytes(moved)), 422, "the plan was altered")
    forged = sign_message(message, "offer", table.plan.context, PartyId("aggregator"), SigningKey.generate())
    _expect(await table.post("server-0", "", canonical_bytes(forged)), 401, "signature")


@on_loop
async def test_only_the_aggregator_runs_a_round_and_only_silos_send_shares(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    for party in ("silo-1", "server-1", "researcher"):
        for call in ("close", "agree", "release", "finish"):
            answer = await table.world.as_party(party, "server-0").post(f"/v1/rounds/{table.ctx}/{call}")
            _expect(answer, 403, "this call is for aggregator")
    answer = await table.as_aggregator["server-0"].put(f"/v1/rounds/{table.ctx}/parts/0", content=b"")
    _expect(answer, 403, "this call is for silo")


@on_loop
async def test_strangers_reach_health_only(tmp_path: Path) -> None:
    table = Table(tmp_path)
    app = table.world.servers["server-0"].app
    async with client_of(app, None) as nobody:
        assert (await nobody.get("/livez")).status_code == 200
        assert (await nobody.get("/readyz")).status_code == 200
        for path in ("/v1/log", "/v1/rounds", "/docs", "/openapi.json", "/anything"):
            _expect(await nobody.get(path), 401, "expected a client certificate")
    stranger = table.federation.certificate_der("silo-1", SigningKey.generate())
    async with client_of(app, stranger) as unenrolled:
        _expect(await unenrolled.get("/v1/log"), 403, "its key is not in the roster")


@on_loop
async def test_a_silo_cannot_speak_for_another(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    theirs = table.share("silo-2")
    answer = await table.world.as_party("silo-1", "server-1").post(
        f"/v1/rounds/{table.ctx}/manifests", content=submission(theirs, "server-1")
    )
    _expect(answer, 403, "expected it from silo-1, got silo-2")
    claimed = theirs.manifest.model_copy(update={"silo": SiloId(PartyId("silo-2"))})
    signed_by_one = table.federation.sign(claimed, "manifest", table.plan.context, "silo-1")
    body = canonical_bytes(
        {
            "manifest": signed_by_one.model_dump(mode="json"),
            "sealed_seed": base64.b64encode(theirs.sealed_seeds[ServerId(PartyId("server-1"))]).decode(),
        }
    )
    answer = await table.world.as_party("silo-1", "server-1").post(
        f"/v1/rounds/{table.ctx}/manifests", content=body
    )
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:sealsum:policy-refusal")


@on_loop
async def test_a_part_is_taken_once_whole_and_unaltered(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    silo = table.world.as_party("silo-1", "server-0")
    path, part = f"/v1/rounds/{table.ctx}/parts/0", table.share("silo-1").parts[0]
    flipped = bytes([part[0] ^ 1]) + part[1:]
    _expect(await silo.put(path, content=flipped, headers=content_digest(part)), 422, "send it again")
    _expect(await silo.put(path, content=part), 400, "Content-Digest")
    _expect(await silo.put(path, content=part[:-4], headers=content_digest(part[:-4])), 422, "24 bytes")
    _expect(await silo.put(path, content=part + b"\0", headers=content_digest(part)), 413, "at most 24")
    _expect(await silo.put(path[:-1] + "1", content=part, headers=content_digest(part)), 422, "got 1")
    assert not _files(tmp_path / "server-0" / "parts")
    assert (await silo.put(path, content=part, headers=content_digest(part))).status_code == 201
    assert (await silo.put(path, content=part, headers=content_digest(part))).status_code == 200
    _expect(await silo.put(path, content=flipped, headers=content_digest(flipped)), 409, "came first")


@on_loop
async def test_an_oversize_stream_is_cut_off_and_leaves_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield bytes(1 << 16)

    silo = table.world.as_party("silo-1", "server-0")
    answer = await silo.put(
        f"/v1/rounds/{table.ctx}/parts/0", content=endless(), headers=content_digest(b"x")
    )
    _expect(answer, 413)
    assert not _files(tmp_path / "server-0" / "parts")


@on_loop
async def test_a_part_that_arrives_while_its_round_ends_is_not_left_behind(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    part = table.share("silo-1").parts[0]
    ended = RoundResult(
        outcome="aborted",
        reason="test",
        survivors=(),
        model_in=table.plan.model,
        model_out=None,
        openings=0,
        job_state="running",
    )
    result = table.federation.sign(ended, "result", table.plan.context, "aggregator")

    async def slow() -> Any:
        yield part[:8]
        assert (await table.post("server-0", "finish", canonical_bytes(result))).status_code == 204
        yield part[8:]

    silo = table.world.as_party("silo-1", "server-0")
    path = f"/v1/rounds/{table.ctx}/parts/0"
    _expect(await silo.put(path, content=slow(), headers=content_digest(part)), 409, "it ended while")
    assert not _files(tmp_path / "server-0" / "parts")


@on_loop
async def test_a_manifest_without_all_its_parts_names_them(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    shared = table.share("silo-1")
    silo = table.world.as_party("silo-1", "server-0")
    path = f"/v1/rounds/{table.ctx}"
    answer = await silo.post(f"{path}/manifests", content=submission(shared, "server-0"))
    _expect(answer, 422, "1 missing, send them and commit again: 0")
    other = table.share("silo-1").parts[0]
    await silo.put(f"{path}/parts/0", content=other, headers=content_digest(other))
    answer = await silo.post(f"{path}/manifests", content=submission(shared, "server-0"))
    _expect(answer, 422, "part 0 here is not the one the manifest names")


@on_loop
async def test_a_seed_that_does_not_open_is_refused_at_once(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    shared = table.share("silo-1")
    silo = table.world.as_party("silo-1", "server-1")
    path = f"/v1/rounds/{table.ctx}/manifests"
    _expect(await silo.post(path, content=submission(shared, "server-0")), 422, "expected one")
    garbage = bytes(1200)
    manifest = shared.manifest.model_copy(
        update={"seeds": {ServerId(PartyId("server-1")): sha256_hex(garbage)}}
    )
    envelope = table.federation.sign(manifest, "manifest", table.plan.context, "silo-1")
    body = {
        "manifest": envelope.model_dump(mode="json"),
        "sealed_seed": base64.b64encode(garbage).decode(),
    }
    _expect(await silo.post(path, content=canonical_bytes(body)), 400, "does not open")


@on_loop
async def test_a_second_other_manifest_of_a_silo_is_refused_and_the_same_one_repeats(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    shared, other = table.share("silo-1"), table.share("silo-1")
    silo = table.world.as_party("silo-1", "server-1")
    path = f"/v1/rounds/{table.ctx}/manifests"
    assert (await silo.post(path, content=submission(shared, "server-1"))).status_code == 201
    assert (await silo.post(path, content=submission(shared, "server-1"))).status_code == 200
    _expect(await silo.post(path, content=submission(other, "server-1")), 409, "the first one holds")
    await table.close()
    assert (await silo.post(path, content=submission(shared, "server-1"))).status_code == 200
    late = table.share("silo-2")
    answer = await table.world.as_party("silo-2", "server-1").post(path, content=submission(late, "server-1"))
    _expect(answer, 409, "manifest cannot follow in phase frozen")


@on_loop
async def test_a_silo_that_shows_servers_different_manifests_excludes_only_itself(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    await table.send("silo-1", "silo-2", "silo-3")
    one, two = table.share("silo-4"), table.share("silo-4")
    await send_share({"server-0": table.world.as_party("silo-4", "server-0")}, one)
    answer = await table.world.as_party("silo-4", "server-1").post(
        f"/v1/rounds/{table.ctx}/manifests", content=submission(two, "server-1")
    )
    assert answer.status_code == 201
    agreed = await table.agree(await table.close())
    survivors = [_model(parse_envelope(answer.content)).survivors for answer in agreed]
    assert survivors == [("silo-1", "silo-2", "silo-3")] * 2


@on_loop
async def test_a_manifest_of_another_round_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    await table.offer()
    elsewhere = table.federation.plan(table.spec, session="d" * 32)
    assert elsewhere.session != SESSION
    shared = table.federation.share(elsewhere, "silo-1")
    answer = await table.world.as_party("silo-1", "server-1").post(
        f"/v1/rounds/{table.ctx}/manifests", content=submission(shared, "server-1")
    )
    _expect(answer, 401, "envelope.context")


@on_loop
async def test_a_share_altered_on_the_servers_disk_is_not_summed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    survivors = await table.to_agreed()
    part = tmp_path / "server-0" / "parts" / table.ctx / "silo-1" / "00000"
    part.write_bytes(bytes(len(part.read_bytes())))
    _expect(await table.post("server-0", "release", _listed(survivors)), 422, "not the ones that were signed")


@on_loop
async def test_a_server_that_restarts_between_any_two_calls_answers_as_before(tmp_path: Path) -> None:
    table = Table(tmp_path)

    def restart() -> None:
        for server in SERVERS:
            table.world.start_server(server)
        table.as_aggregator = table.world.to_servers("aggregator")

    await table.offer()
    restart()
    await table.send("silo-1", "silo-2", "silo-3")
    restart()
    accepted = await table.close()
    restart()
    assert await table.close() == accepted
    agreed = await table.agree(accepted)
    restart()
    assert [a.content for a in await table.agree(accepted)] == [a.content for a in agreed]
    survivors = [parse_envelope(answer.content) for answer in agreed]
    released = await table.release(survivors)
    assert [answer.status_code for answer in released] == [200, 200]
    restart()
    assert [a.content for a in await table.release(survivors)] == [a.content for a in released]
    part = await table.as_aggregator["server-1"].get(f"/v1/rounds/{table.ctx}/opening/0")
    assert len(part.content) == 24


@on_loop
async def test_refusals_of_members_are_in_the_log_and_those_of_strangers_are_not(tmp_path: Path) -> None:
    table = Table(tmp_path)
    server = table.world.servers["server-0"]
    async with client_of(server.app, None) as nobody:
        await nobody.get("/v1/log")
    await table.world.as_party("silo-1", "server-0").post(f"/v1/rounds/{'0' * 64}/close")
    log = (await table.world.as_party("researcher", "server-0").get("/v1/log")).content
    entries = [parse_record(line) for line in log.splitlines()]
    assert [one.body["party"] for one in entries if one.kind == "request_refused"] == ["silo-1"]


def _chi_square(raw: bytes) -> float:
    """χ² of the byte frequencies against uniform; 255 degrees of freedom, so 255 ± 22.6 by chance."""
    counts = np.bincount(np.frombuffer(raw, dtype=np.uint8), minlength=256)
    expected = len(raw) / 256
    return float(((counts - expected) ** 2 / expected).sum())


@on_loop
async def test_what_one_share_server_stores_is_uniform_noise_even_of_an_all_zero_update(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path, size=1 << 16)
    await table.offer()
    shares = [table.share(silo) for silo in table.plan.silos]
    for silo, share in zip(table.plan.silos, shares, strict=True):
        await send_share(table.world.to_servers(silo), share)
    stored = [path.read_bytes() for path in sorted((tmp_path / "server-0" / "parts").rglob("00000"))]
    assert len(stored) == len(table.plan.silos)
    assert _chi_square(ring_to_bytes(shares[0].encoded)) > 1e6  # without its mask it would show
    between = [bytes(a ^ b for a, b in zip(stored[0], other, strict=True)) for other in stored[1:]]
    for raw in [*stored, *between]:
        assert 255 - 6 * 22.6 < _chi_square(raw) < 255 + 6 * 22.6
    for server, others in (("server-0", "sealed seeds"), ("server-1", "vectors")):
        disk = b"".join(path.read_bytes() for path in _files(tmp_path / server))
        for share in shares:
            needles = share.sealed_seeds.values() if others == "sealed seeds" else share.parts
            assert not any(needle[:64] in disk for needle in needles), f"{server} holds {others}"

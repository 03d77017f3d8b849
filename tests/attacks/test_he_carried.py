"""Attacks on carried ``bfv`` and ``ckks``: by an aggregator that shows another sum or key, and by others.

The schemes promise nothing against an aggregator that tampers (docs/protocols.md). What it can be caught at,
it is caught at, here; and what it never holds, it cannot give away.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aggregator.job_keys import JobKeys
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.he.framing import he_stretches
from privacy.secagg.he.keys import HeKey, KeyUse, make_key, unwrap_key, wrap_key
from privacy.secagg.he.messages import OpenedSum, SumManifest, WrappedKey
from privacy.secagg.he.parameters import parameters_named, row_for
from privacy.secagg.he.sum_half import HeSumHalf
from privacy.wire.envelope import Envelope, sign_message
from silo_agent.delivery import Delivery
from silo_agent.job_secrets import JobSecrets
from tests.aggregator_world import client_of, on_loop
from tests.he_world import HeWorld, he_federation
from tests.pairwise_world import CarriedSilo, files_under, oracle_model

SCHEMES = ("bfv", "ckks")
Inbox = tuple[Envelope, ...]


def _plan(world: HeWorld) -> RoundPlan:
    assert world.aggregator is not None
    assert world.aggregator.state.current is not None
    return world.aggregator.state.current.round.plan


Lies = dict[str, dict[int, bytes]]
"""Silo → part of the sum → what a lying aggregator serves it instead."""


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> Lies:
    """Served to the silos named, as the aggregator's own."""
    told: Lies = {}
    honest = Delivery.get_file

    def get_file(self: Delivery, context: Context, name: str, index: int, limit: int) -> bytes:
        raw = honest(self, context, name, index, limit)
        return told.get(self._silo, {}).get(index, raw)

    monkeypatch.setattr(Delivery, "get_file", get_file)
    return told


def _other_sum(world: HeWorld, lies: Lies, to: str, inbox: Inbox, of: Sequence[str]) -> Inbox:
    """What a lying aggregator shows: the sum of these silos' ciphertexts, signed as that of all survivors."""
    plan = _plan(world)
    assert plan.he is not None
    half, root = HeSumHalf(plan.he, len(plan.cohort)), world.root / "aggregator"
    updates = root / "parts" / plan.context
    for piece in he_stretches(parameters_named(plan.he), plan.vector_length):
        parts = [(updates / name / f"parts-{piece.index:05d}").read_bytes() for name in of]
        lies.setdefault(to, {})[piece.index] = half.total(parts, piece)
    honest = SumManifest.model_validate_json(inbox[0].body)
    lie = honest.model_copy(update={"parts": tuple(sha256_hex(part) for part in lies[to].values())})
    return (world.federation.sign(lie, "he_sum", plan.context, "aggregator"), *inbox[1:])


async def _refused(world: HeWorld, silos: list[CarriedSilo], match: str, by: int = 1) -> dict[str, Any]:
    """Run one round; that silo opens nothing and says so, and the round ends by name without a model."""
    view = await world.run_job(world.spec(), silos)
    (ended,) = view["history"]
    assert (ended["outcome"], view["openings"]) == ("aborted", 1), ended
    assert f"silo {silos[by].name} does not open the sum (sum.refused)" in ended["reason"]
    assert any(match in str(fault) for fault in silos[by].faults), silos[by].faults
    assert "model_published" not in [kind for kind, _ in world.log()]
    return view


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_one_silos_ciphertext_handed_out_as_the_sum_is_not_opened(
    tmp_path: Path, lies: Lies, scheme: str
) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    async with world.running():
        silos = world.silos()
        silos[1].shown["opened"] = lambda inbox: _other_sum(world, lies, "silo-2", inbox, ["silo-3"])
        await _refused(world, silos, "it is not the sum of 4 updates under this key")


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_a_second_sum_of_a_round_is_not_opened_also_after_a_restart(
    tmp_path: Path, lies: Lies, scheme: str
) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    async with world.running():
        silos = world.silos(silo_2={"crashes": ("before", "opened")})
        shown, without_the_last = 0, ["silo-1", "silo-2", "silo-3"]

        def two_sums(inbox: Inbox) -> Inbox:
            nonlocal shown
            shown += 1
            # The difference of the two would be silo-4's update.
            return inbox if shown == 1 else _other_sum(world, lies, "silo-2", inbox, without_the_last)

        silos[1].shown["opened"] = two_sums
        await _refused(world, silos, "has opened another one of this round")
        assert shown == 2


@on_loop
async def test_the_same_sum_may_be_opened_again_after_a_restart_and_says_the_same(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_2={"crashes": ("before", "opened")})
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        assert len(silos[1].inboxes["opened"]) == 2
        marker = silos[1].directory / "secrets" / view["history"][0]["context"] / "sum"
        assert marker.read_text() == silos[1].inboxes["opened"][0][0].body_digest


@on_loop
async def test_an_altered_part_of_the_sum_is_not_decrypted(tmp_path: Path, lies: Lies) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos()

        def alter(inbox: Inbox) -> Inbox:
            raw = (tmp_path / "aggregator" / "sums" / _plan(world).context / "sum-00000").read_bytes()
            lies["silo-2"] = {0: bytes([raw[0] ^ 1]) + raw[1:]}
            return inbox

        silos[1].shown["opened"] = alter
        await _refused(world, silos, "its bytes are not the ones signed for")


def _without_last(inbox: Inbox) -> Inbox:
    return inbox[:-1]


def _one_twice(inbox: Inbox) -> Inbox:
    return (*inbox[:-1], inbox[-2])


def _nothing(inbox: Inbox) -> Inbox:
    return ()


def _unsigned(inbox: Inbox) -> Inbox:
    return (*inbox[:-1], inbox[-1].model_copy(update={"signature": "00" * 64}))


def _by_a_silo(inbox: Inbox) -> Inbox:
    return (inbox[0].model_copy(update={"sender": PartyId("silo-1")}), *inbox[1:])


@pytest.mark.parametrize(
    ("show", "match"),
    [
        (_without_last, "expected 4 manifests, got 3"),
        (_one_twice, "expected it from silo-4, got silo-3"),
        (_nothing, "got nothing"),
        (_unsigned, "not over these bytes"),
        (_by_a_silo, "expected it from aggregator"),
    ],
)
@on_loop
async def test_a_sum_is_opened_only_with_every_survivors_signed_manifest(
    tmp_path: Path, show: Callable[[Inbox], Inbox], match: str
) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        silos[1].shown["opened"] = show
        await _refused(world, silos, match)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"survivors": ("silo-2",)}, "expected at least 3"),
        ({"survivors": ("silo-1", "silo-3", "silo-4")}, "the manifest that silo-2 signed is not among them"),
        ({"survivors": ("silo-1", "silo-2", "stranger")}, "expected distinct invited silos"),
        ({"survivors": ("silo-2", "silo-2", "silo-3")}, "expected distinct invited silos"),
    ],
)
@on_loop
async def test_a_sum_over_other_survivors_than_a_silo_may_open_is_not_opened(
    tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos()

        def lie(inbox: Inbox) -> Inbox:
            honest = SumManifest.model_validate_json(inbox[0].body)
            manifest_of = dict(zip(honest.survivors, honest.manifests, strict=True))
            manifests = tuple(manifest_of.get(name, Digest("00" * 32)) for name in changes["survivors"])
            other = honest.model_copy(update={**changes, "manifests": manifests})
            signed = world.federation.sign(other, "he_sum", _plan(world).context, "aggregator")
            return (signed, *(one for one in inbox[1:] if one.sender in changes["survivors"]))

        silos[1].shown["opened"] = lie
        await _refused(world, silos, match)


@on_loop
async def test_a_silo_that_says_another_sum_ends_the_round_by_name(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos()

        def lie(messages: Inbox) -> Inbox:
            honest = OpenedSum.model_validate_json(messages[0].body)
            other = honest.model_copy(update={"parts": (Digest("ab" * 32),)})
            return (world.federation.sign(other, "he_opened", messages[0].context, "silo-3"),)

        silos[2].tampers["opened"] = lie
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert "silos say different sums" in ended["reason"]
        assert "silo-3" in ended["reason"]
        assert (ended["outcome"], view["openings"]) == ("aborted", 1)


@pytest.mark.parametrize("field", ["sum", "silo"])
@on_loop
async def test_a_word_on_another_sum_or_in_anothers_name_is_refused(tmp_path: Path, field: str) -> None:
    world = HeWorld(tmp_path)
    async with world.running():
        silos = world.silos()

        def lie(messages: Inbox) -> Inbox:
            honest = OpenedSum.model_validate_json(messages[0].body)
            change = {"sum": Digest("ab" * 32)} if field == "sum" else {"silo": SiloId(PartyId("silo-1"))}
            return (
                world.federation.sign(
                    honest.model_copy(update=change), "he_opened", messages[0].context, "silo-4"
                ),
            )

        silos[3].tampers["opened"] = lie
        spec = world.spec(round_deadline_s=6)
        view = await world.run_job(spec, silos)
        # Refused, it counts as silent: the others' words suffice.
        assert await world.model(view["model"]) == oracle_model(spec, silos)
        assert silos[3].faults


# --- the key ---


def _use(world: HeWorld, **changes: Any) -> KeyUse:
    spec, charter = world.spec(), world.federation.charter
    row = parameters_named(row_for(spec.scheme, spec.vector, len(charter.silos)))
    return KeyUse(
        **{
            "federation": charter.federation,
            "epoch": charter.epoch,
            "job": spec.digest,
            "parameters": row,
            **changes,
        }
    )


def _sealed(
    world: HeWorld, key: HeKey, maker: str, context: Digest, signer: SigningKey | None = None
) -> list[Envelope]:
    charter, who = world.federation.charter, SiloId(PartyId(maker))
    return [
        sign_message(
            wrap_key(key, who, silo, charter.member(silo).sealing_key),
            "he_key",
            context,
            who,
            signer or world.federation.key(maker),
            recipient=silo,
        )
        for silo in charter.silos
    ]


async def _put(world: HeWorld, caller: str, envelopes: Sequence[Envelope]) -> int:
    assert world.aggregator is not None
    async with client_of(world.aggregator.app, world.federation.certificate_der(caller)) as client:
        raw = canonical_bytes([one.model_dump(mode="json") for one in envelopes])
        return (await client.put("/v1/jobs/heart/he-key", content=raw)).status_code


@on_loop
async def test_a_key_is_taken_whole_from_the_silo_that_signed_it_for_this_job_and_roster_alone(
    tmp_path: Path,
) -> None:
    world = HeWorld(tmp_path)
    job = world.spec().digest
    key = make_key(_use(world))
    honest = _sealed(world, key, "silo-1", job)
    another_job = make_key(_use(world, job=Digest("cd" * 32)))
    async with world.running():
        assert await _put(world, "silo-1", honest) == 404, "no such job yet"
        await world.submit(world.spec())
        bad = {
            "a researcher": ("researcher", honest, 403),
            "another silo's": ("silo-2", honest, 403),
            "incomplete": ("silo-1", honest[:-1], 422),
            "one twice": ("silo-1", [*honest[:-1], honest[0]], 422),
            "another epoch": ("silo-1", _sealed(world, make_key(_use(world, epoch=2)), "silo-1", job), 422),
            "another job inside": ("silo-1", _sealed(world, another_job, "silo-1", job), 422),
            "another job": ("silo-1", _sealed(world, another_job, "silo-1", Digest("cd" * 32)), 401),
            "unsigned": ("silo-1", _sealed(world, key, "silo-1", job, SigningKey.generate()), 401),
            "two keys": (
                "silo-1",
                [*honest[:-1], _sealed(world, make_key(_use(world)), "silo-1", job)[-1]],
                422,
            ),
        }
        for why, (caller, envelopes, status) in bad.items():
            assert await _put(world, caller, envelopes) == status, why
        assert [await _put(world, "silo-1", honest) for _ in range(2)] == [201, 200]
        assert await _put(world, "silo-2", _sealed(world, key, "silo-2", job)) == 409


@on_loop
async def test_a_silo_gets_the_key_as_sealed_to_itself_and_cannot_open_anothers(tmp_path: Path) -> None:
    world = HeWorld(tmp_path)
    key = make_key(_use(world))
    sealed = _sealed(world, key, "silo-1", world.spec().digest)
    async with world.running() as aggregator:
        await world.submit(world.spec())
        assert await _put(world, "silo-1", sealed) == 201
        for name in world.federation.charter.silos:
            async with client_of(aggregator.app, world.federation.certificate_der(name)) as client:
                got = Envelope.model_validate_json((await client.get("/v1/jobs/heart/he-key")).content)
            assert got.recipient == name
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            assert (await client.get("/v1/jobs/heart/he-key")).status_code == 403
    mine = world.federation.parties["silo-2"].sealing
    assert mine is not None
    theirs = WrappedKey.model_validate_json(sealed[2].body)
    with pytest.raises(Exception, match="does not open with this key"):
        unwrap_key(theirs, _use(world), SiloId(PartyId("silo-1")), SiloId(PartyId("silo-3")), mine)


@pytest.mark.parametrize(
    "forgery", ["signed by the aggregator", "unsigned", "of another job", "another silo's"]
)
@on_loop
async def test_a_key_that_the_aggregator_puts_in_the_silos_place_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgery: str
) -> None:
    world = HeWorld(tmp_path)
    spec, charter = world.spec(), world.federation.charter
    use = _use(world, job=Digest("cd" * 32)) if forgery == "of another job" else _use(world)
    key = make_key(use)

    def forged(self: JobKeys, silo: SiloId, job: Any) -> Envelope:
        target = SiloId(PartyId("silo-1")) if forgery == "another silo's" else silo
        sender = "aggregator" if forgery == "signed by the aggregator" else "silo-1"
        maker = SiloId(PartyId(sender))  # consistent to the last: only the roster says what a sender may do
        wrapped = wrap_key(key, maker, target, charter.member(target).sealing_key)
        signer = SigningKey.generate() if forgery == "unsigned" else world.federation.key(sender)
        return sign_message(wrapped, "he_key", spec.digest, PartyId(sender), signer, recipient=target)

    monkeypatch.setattr(JobKeys, "sealed_to", forged)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(spec, silos)
        assert view["state"] == "failed"
        refused = {refusal["silo"]: refusal["rule"] for refusal in view["refusals"]}
        assert {"silo-2", "silo-3"} <= set(refused) or len(refused) >= 2
        assert set(refused.values()) == {"he.key"}
        assert all("ciphertexts" not in silo.sent for silo in silos[1:])


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_an_update_under_another_key_costs_its_sender_only(tmp_path: Path, scheme: str) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    spec = world.spec(round_deadline_s=6)
    async with world.running():
        silos = world.silos()
        JobSecrets(silos[2].directory).keep(spec.digest, spec.job, make_key(_use(world)).secret)
        view = await world.run_job(spec, silos)
        survivors = [silo for silo in silos if silo.name != "silo-3"]
        assert view["history"][0]["survivors"] == [silo.name for silo in survivors]
        assert await world.model(view["model"]) == oracle_model(spec, survivors)
        assert "manifest.key of silo silo-3: it is not the job's" in str(silos[2].faults[0])


@pytest.mark.parametrize("scheme", SCHEMES)
@on_loop
async def test_the_key_is_nowhere_in_what_the_aggregator_stores(tmp_path: Path, scheme: str) -> None:
    world = HeWorld(tmp_path, he_federation(scheme))
    spec, secrets = world.spec(), []
    async with world.running():
        silos = world.silos()

        def look(inbox: Inbox) -> Inbox:
            secret = JobSecrets(silos[1].directory).read(spec.digest)
            assert secret is not None
            secrets.append(secret)
            # Two files of the write-ahead log are open now: what they hold is read as it lies there.
            for path in files_under(tmp_path / "aggregator"):
                raw = path.read_bytes()
                for spelled in (secret, base64.b64encode(secret)[:-4], secret.hex().encode()):
                    assert spelled[:64] not in raw, path
            return inbox

        silos[1].shown["opened"] = look
        await world.run_job(spec, silos)
    (secret,) = secrets
    kept = [path for path in files_under(tmp_path) if base64.b64encode(secret) in path.read_bytes()]
    assert {path.parent.name for path in kept} == {"he"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


def test_an_aggregator_loads_no_code_that_handles_a_key() -> None:
    script = (
        "import sys, aggregator.assembly, aggregator.schemes.he_adding, aggregator.job_keys\n"
        "held = [m for m in ('keys', 'silo_half', 'workers') if f'privacy.secagg.he.{m}' in sys.modules]\n"
        "assert not held, held\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])


def test_an_aggregator_without_tenseal_serves_other_schemes() -> None:
    script = (
        "import sys\n"
        "sys.modules['tenseal'] = None\n"
        "import aggregator.assembly, silo_agent.agent\n"
        "assert 'privacy.secagg.he.door' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])

"""Who lies in a carried pairwise round gets nothing: an aggregator to silos, a silo to all, a reader."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import pytest

from aggregator.desk import Desk
from aggregator.state import AggregatorState
from privacy.canonical import canonical_bytes
from privacy.errors import Conflict, SignatureRejected
from privacy.ids import Digest
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation, WeakTerms
from privacy.secagg.pairwise.messages import ConsistencySignature, KeyAdvert, MaskedInput, UnmaskShares
from privacy.secagg.pairwise.silo_state import SiloState
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import SurvivorSet
from silo_agent.problems import Stopped
from silo_agent.refusals import finding_of, refusal_of
from tests.aggregator_world import on_loop
from tests.federation import AGGREGATOR
from tests.pairwise_world import PairwiseWorld, files_under, oracle_model, pairwise_federation

Sent = tuple[Envelope, ...]


def without(*parties: str) -> Any:
    """An inbox less what these parties sent."""
    return lambda inbox: tuple(message for message in inbox if message.sender not in parties)


def listed(messages: Sent) -> bytes:
    """Messages as they are posted."""
    return canonical_bytes([message.model_dump(mode="json") for message in messages])


# --- the aggregator lies to silos ---


@pytest.mark.slow
@on_loop
async def test_a_silo_shown_two_sets_of_survivors_signs_the_first_only_also_after_a_restart(
    tmp_path: Path,
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]
        # It is shown survivors without silo-4, signs, crashes before that is out, and is shown all of them.
        lied_to.shown["consistency"] = without("silo-4")
        lied_to.crashes = ("before", "consistency")
        lied_to.on_return = lambda: lied_to.shown.clear()
        view = await world.run_job(spec, silos)
        assert [type(fault) for fault in lied_to.faults] == [Equivocation]
        assert "consistency" not in lied_to.sent
        assert "unmask" not in lied_to.sent
        # The others are enough, and open what all of them have signed.
        assert await world.model(view["model"]) == oracle_model(spec, silos)


@pytest.mark.slow
@on_loop
async def test_a_silo_that_signed_another_set_than_the_aggregators_does_not_count(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        silos[0].shown["consistency"] = without("silo-4")
        silos[1].shown["consistency"] = without("silo-4")
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert (ended["outcome"], view["openings"]) == ("aborted", 0)
        assert "consistency: expected at least 3 silos, got 2" in ended["reason"]
        assert not any("unmask" in silo.sent for silo in silos)


@pytest.mark.parametrize("shown", ["too few", "forged", "another round's"])
@pytest.mark.slow
@on_loop
async def test_no_share_leaves_a_silo_before_enough_silos_have_signed_its_set(
    tmp_path: Path, shown: str
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]
        if shown == "too few":
            lied_to.shown["unmask"] = without("silo-3", "silo-4")
        else:
            lied_to.shown["unmask"] = lambda inbox: tuple(
                message.model_copy(
                    update={"signature": "00" * 64} if shown == "forged" else {"context": "00" * 32}
                )
                if message.sender == "silo-4"
                else message
                for message in inbox
            )
        await world.run_job(spec, silos)
        wanted = BelowThreshold if shown == "too few" else SignatureRejected
        assert [type(fault) for fault in lied_to.faults] == [wanted]
        assert "unmask" not in lied_to.sent


@pytest.mark.parametrize("swap", ["signed by the aggregator", "signed for another silo", "left out"])
@on_loop
async def test_a_silo_shown_other_keys_than_its_peers_advertised_deals_no_shares(
    tmp_path: Path, swap: str
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]

        def swapped(inbox: Sent) -> Sent:
            victim = next(message for message in inbox if message.sender == "silo-2")
            other = next(message for message in inbox if message.sender == "silo-3")
            rest = tuple(message for message in inbox if message.sender != "silo-2")
            match swap:
                case "signed by the aggregator":
                    forged = world.federation.sign(
                        KeyAdvert.model_validate_json(other.body),
                        "pairwise_keys",
                        victim.context,
                        "aggregator",
                    )
                    return (*rest, forged.model_copy(update={"sender": "silo-2"}))
                case "signed for another silo":
                    return (*rest, other.model_copy(update={"sender": "silo-2"}))
                case _:
                    return tuple(message for message in inbox if message.sender != "silo-1")

        lied_to.shown["shares"] = swapped
        view = await world.run_job(spec, silos)
        assert [type(fault) for fault in lied_to.faults] == [SignatureRejected]
        assert "shares" not in lied_to.sent
        assert await world.model(view["model"]) == oracle_model(spec, silos[1:])


@pytest.mark.slow
@on_loop
async def test_a_message_of_the_round_before_is_believed_neither_by_a_silo_nor_by_the_aggregator(
    tmp_path: Path,
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec(rounds=2)
    async with world.running():
        silos = world.silos()
        reader, replayer = silos[0], silos[1]
        # The aggregator replays round 1's inbox to one silo; another silo replays its own round 1 keys.
        reader.shown["shares"] = lambda _: reader.inboxes["shares"][0]
        replayer.tampers["keys"] = lambda messages: replayer.sent.get("keys", [messages])[0]
        view = await world.run_job(spec, silos)
        assert [type(fault) for fault in reader.faults] == [SignatureRejected]
        assert "envelope.context" in str(reader.faults[0])
        assert [type(fault) for fault in replayer.faults] == [SignatureRejected]
        assert [one["outcome"] for one in view["history"]] == ["opened", "aborted"]


@on_loop
async def test_terms_too_weak_for_a_silos_own_threat_model_are_refused_by_name_before_it_makes_a_key(
    tmp_path: Path,
) -> None:
    world = PairwiseWorld(tmp_path, pairwise_federation(silos=5))
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        wary = silos[0]
        wary.own_policy = (
            world.federation.policy_text.replace("colludes_with_silos: 1", "colludes_with_silos: 3")
            .replace("min_silos_open: 3", "min_silos_open: 5")
            .replace("max_dropouts: 1", "max_dropouts: 0")
        )
        view = await world.run_job(spec, silos)
        (fault,) = wary.faults
        assert isinstance(fault, WeakTerms)
        assert finding_of(fault).rule == "scheme.weak_terms"
        assert [refusal["rule"] for refusal in view["refusals"]] == ["scheme.weak_terms"]
        assert wary.sent == {}
        assert not (wary.directory / "secrets").exists(), "no key was made"
        assert await world.model(view["model"]) == oracle_model(spec, silos[1:])


# --- the aggregator keeps its own order ---


@on_loop
async def test_nothing_that_unmasks_is_asked_for_before_the_opening_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PairwiseWorld(tmp_path)
    at_unmask: list[tuple[str, bool]] = []

    def watched(desk: Desk, step: str, inboxes: Any, accept: Any) -> None:
        assert world.aggregator is not None
        state = world.aggregator.state
        if step == "unmask" and state.current is not None:
            with state.store.read() as view:
                recorded = view.opening(state.current.ctx) is not None
            at_unmask.append((state.current.round.phase, recorded))
        open_step(desk, step, inboxes, accept)

    open_step = Desk.open
    monkeypatch.setattr(Desk, "open", watched)
    async with world.running():
        silos = world.silos()
        # One that hands out its shares too early finds nobody who takes them.
        early: list[int] = []

        def too_early(messages: Sent) -> Sent:
            context = messages[0].context
            signed = ConsistencySignature.model_validate_json(messages[0].body)
            shares = UnmaskShares(
                key_set=signed.key_set, consistency=signed.digest, seed_shares={}, key_shares={}
            )
            raw = listed((world.federation.sign(shares, "pairwise_unmask", context, "silo-1"),))
            early.append(world.call("POST", "silo-1", f"/v1/rounds/{context}/steps/unmask", raw).status_code)
            # What nobody takes is not read either: parsing costs the server more than sending costs a silo.
            early.append(world.call("POST", "silo-1", f"/v1/rounds/{context}/steps/unmask", b"[").status_code)
            return messages

        silos[0].tampers["consistency"] = too_early
        view = await world.run_job(world.spec(), silos)
    assert view["openings"] == 1
    assert at_unmask == [("opening", True)]
    assert early == [409, 409]


@on_loop
async def test_the_aggregator_clears_no_other_set_than_its_silos_have_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PairwiseWorld(tmp_path)
    sign = AggregatorState.sign

    def one_less(state: AggregatorState, message: Any, kind: Any, context: Digest) -> Envelope:
        if isinstance(message, SurvivorSet):
            message = message.model_copy(
                update={"survivors": message.survivors[:-1], "manifests": message.manifests[:-1]}
            )
        return sign(state, message, kind, context)

    monkeypatch.setattr(AggregatorState, "sign", one_less)
    async with world.running():
        silos = world.silos()
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert (ended["outcome"], view["openings"]) == ("aborted", 0)
        assert "masks come off only for a set that enough of its silos have signed" in ended["reason"]
        assert not any("unmask" in silo.sent for silo in silos)


# --- a silo lies ---


@pytest.mark.slow
@on_loop
async def test_a_silo_that_was_sent_another_model_does_not_count(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos(silo_3={"masked_under": Digest("ab" * 32)})
        view = await world.run_job(spec, silos)
        counted = [silo for silo in silos if silo.name != "silo-3"]
        assert view["history"][0]["survivors"] == [silo.name for silo in counted]
        assert await world.model(view["model"]) == oracle_model(spec, counted)
        assert [type(fault) for fault in silos[2].faults] == [Conflict]


@on_loop
async def test_an_update_masked_otherwise_than_its_manifest_says_makes_noise_and_no_model(
    tmp_path: Path,
) -> None:
    world = PairwiseWorld(tmp_path)
    async with world.running():
        silos = world.silos(silo_3={"masked_under": Digest("ab" * 32), "hides_it": True})
        view = await world.run_job(world.spec(), silos)
        (ended,) = view["history"]
        assert ended["outcome"] == "aborted"
        assert "its weight is not the number of survivors" in ended["reason"]
        assert "model_published" not in [kind for kind, _ in world.log()]


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "consistency", "unmask"])
@pytest.mark.slow
@on_loop
async def test_a_silo_that_brings_anothers_message_as_its_own_harms_itself_only(
    tmp_path: Path, step: Any
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        liar, victim = silos[3], silos[0]

        def stolen(messages: Sent) -> Sent:
            until = time.monotonic() + 20
            while step not in victim.sent and time.monotonic() < until:
                time.sleep(0.01)
            return victim.sent[step][0]

        liar.tampers[step] = stolen
        view = await world.run_job(spec, silos)
        counted = silos if step in ("consistency", "unmask") else silos[:3]
        assert view["history"][0]["survivors"] == [silo.name for silo in counted]
        assert await world.model(view["model"]) == oracle_model(spec, counted)
        assert any(status == 403 for method, path, status in world.calls if path.endswith(f"steps/{step}"))


@pytest.mark.slow
@on_loop
async def test_a_share_of_another_value_than_was_dealt_is_refused_and_the_others_open_the_sum(
    tmp_path: Path,
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()

        def altered(messages: Sent) -> Sent:
            answer = UnmaskShares.model_validate_json(messages[0].body)
            seeds = {dealer: share[::-1] for dealer, share in answer.seed_shares.items()}
            lie = answer.model_copy(update={"seed_shares": seeds})
            key = world.federation.key("silo-2")
            return (
                sign_message(lie, "pairwise_unmask", messages[0].context, silos[1].silo, key, AGGREGATOR),
            )

        silos[1].tampers["unmask"] = altered
        view = await world.run_job(spec, silos)
        assert "is not the one dealt to it" in str(silos[1].faults[0])
        assert await world.model(view["model"]) == oracle_model(spec, silos)


@pytest.mark.slow
@on_loop
async def test_a_manifest_of_parts_that_are_not_here_or_are_others_does_not_count(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()
        silos[0].uploads = lambda raw: None
        silos[1].uploads = lambda raw: raw[::-1]
        view = await world.run_job(spec, silos)
        assert "1 missing" in str(silos[0].faults[0])
        assert "is not the one the manifest names" in str(silos[1].faults[0])
        assert view["history"][0]["outcome"] == "aborted"
        assert view["openings"] == 0


@on_loop
async def test_a_second_message_in_a_step_is_refused_and_a_refusal_after_the_upload_changes_nothing(
    tmp_path: Path,
) -> None:
    world = PairwiseWorld(tmp_path)
    spec = world.spec()
    answers: dict[str, int] = {}
    async with world.running():
        silos = world.silos()

        def and_another(messages: Sent) -> Sent:
            context = messages[0].context
            body = MaskedInput.model_validate_json(messages[0].body)
            second = world.federation.sign(
                body.model_copy(update={"parts": ("00" * 32,)}), "pairwise_masked", context, "silo-1"
            )
            refusal = world.federation.sign(
                refusal_of(Stopped("told to end"), silos[0].silo), "refusal", context, "silo-1"
            )
            for name, path, raw in (
                ("first", "steps/masked", listed(messages)),
                ("second", "steps/masked", listed((second,))),
                ("refusal", "refusals", canonical_bytes(refusal)),
            ):
                path = f"/v1/rounds/{context}/{path}"
                answers[name] = world.call("POST", "silo-1", path, raw).status_code
            return messages

        silos[0].tampers["masked"] = and_another
        view = await world.run_job(spec, silos)
        assert await world.model(view["model"]) == oracle_model(spec, silos)
    assert answers == {"first": 202, "second": 409, "refusal": 409}
    assert view["history"][0]["survivors"] == [silo.name for silo in silos]


# --- who may read and write what ---


@on_loop
async def test_an_inbox_and_a_file_are_for_the_silo_they_are_for(tmp_path: Path) -> None:
    world = PairwiseWorld(tmp_path, pairwise_federation(silos=5))
    spec = world.spec()
    asked: dict[str, int] = {}
    async with world.running():
        silos = world.silos(silo_5={"refuses": True})

        def look(messages: Sent) -> Sent:
            context = messages[0].context
            bundles = world.call("GET", "silo-2", f"/v1/rounds/{context}/steps/masked").json()
            assert {bundle["recipient"] for bundle in bundles} == {"silo-2"}
            part = b"\0" * 4 * (spec.model.parameters + 1)
            files = f"/v1/rounds/{context}/files"
            for who, method, path, raw in (
                ("silo-5", "GET", f"/v1/rounds/{context}/steps/masked", b""),
                ("researcher", "GET", f"/v1/rounds/{context}/steps/masked", b""),
                ("silo-5", "PUT", f"{files}/parts/0", part),
                ("researcher", "PUT", f"{files}/parts/0", part),
                ("silo-2", "GET", f"{files}/parts/0", b""),
                ("silo-2", "PUT", f"{files}/parts/1", part),
                ("silo-2", "PUT", f"{files}/sum/0", part),
                ("silo-2", "PUT", f"{files}/parts/0", part + b"\0"),
                ("silo-2", "GET", f"/v1/rounds/{context}/steps/nonsense", b""),
            ):
                asked[f"{who} {method} {path.removeprefix(f'/v1/rounds/{context}')} {len(raw)}"] = world.call(
                    method, who, path, raw
                ).status_code
            return messages

        silos[0].tampers["masked"] = look
        view = await world.run_job(spec, silos)
    assert asked == {
        "silo-5 GET /steps/masked 0": 403,
        "researcher GET /steps/masked 0": 403,
        "silo-5 PUT /files/parts/0 24": 403,
        "researcher PUT /files/parts/0 24": 403,
        "silo-2 GET /files/parts/0 0": 404,
        "silo-2 PUT /files/parts/1 24": 422,
        "silo-2 PUT /files/sum/0 24": 422,
        "silo-2 PUT /files/parts/0 25": 413,
        "silo-2 GET /steps/nonsense 0": 404,
    }
    assert view["history"][0]["outcome"] == "opened"


@pytest.mark.slow
@on_loop
async def test_no_share_that_unmasks_is_on_the_aggregators_disk_and_no_silos_secret_is_readable_by_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = PairwiseWorld(tmp_path)
    caplog.set_level("DEBUG")
    async with world.running():
        silos = world.silos(silo_4={"leaves": "masked"})
        await world.run_job(world.spec(), silos)
        answers = [UnmaskShares.model_validate_json(silo.sent["unmask"][0][0].body) for silo in silos[:3]]
        shares = [
            share.encode()
            for answer in answers
            for share in (*answer.seed_shares.values(), *answer.key_shares.values())
        ]
        assert len(shares) == 12
    # Looked at once the servers have ended: until then the last round's parts are still being scrubbed.
    for path in files_under(tmp_path / "aggregator"):
        raw = path.read_bytes()
        assert not any(share in raw or bytes.fromhex(share.decode()) in raw for share in shares), path
    assert not any(share.decode() in caplog.text for share in shares)
    for silo in silos:
        (stored,) = files_under(silo.directory / "secrets")
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        assert stat.S_IMODE(stored.parent.stat().st_mode) == 0o700
    for silo in silos[:3]:
        (stored,) = files_under(silo.directory / "secrets")
        state = SiloState.from_bytes(stored.read_bytes())
        assert state.secrets is None, "gone once the masked update was signed"
        assert state.held == {}, "gone once the shares were handed out"

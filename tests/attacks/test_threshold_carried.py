"""Who lies in a carried round under a joint key opens nothing: an aggregator to silos, or a silo to all."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from aggregator.assembly import assemble_aggregator
from aggregator.settings import AggregatorSettings, load_settings
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, OutOfOrder, SignatureRejected
from privacy.ids import Digest, PartyId, SiloId
from privacy.secagg.pairwise.faults import Equivocation, WeakTerms
from privacy.secagg.threshold.faults import BadJointKey, BadSum
from privacy.secagg.threshold.kept import OpenFhe
from privacy.secagg.threshold.messages import (
    CiphertextManifest,
    KeyReveal,
    PartialDecryption,
    SumManifest,
)
from privacy.secagg.threshold.silo_state import SiloState, text_to_bytes, to_text
from privacy.wire.envelope import Envelope
from sealsum.policy_commands import policy
from silo_agent.delivery import Delivery
from silo_agent.own_policy import assert_scheme_runs
from silo_agent.refusals import finding_of
from silo_agent.schemes.half import Seat
from silo_agent.schemes.threshold import ThresholdHalf
from silo_agent.settings import read_settings
from tests.aggregator_world import on_loop
from tests.federation import AGGREGATOR, demo_policy_text
from tests.pairwise_world import files_under, oracle_model
from tests.threshold_world import ThresholdWorld, threshold_federation, threshold_policy

Sent = tuple[Envelope, ...]
Bend = Callable[[Sent], Sent]


def listed(messages: Sent) -> bytes:
    """Messages as they are posted."""
    return canonical_bytes([message.model_dump(mode="json") for message in messages])


def resigned(world: ThresholdWorld, message: Any, like: Envelope, sender: str | None = None) -> Envelope:
    """Another body in an envelope like that one, signed by its sender's key."""
    return world.federation.sign(message, like.kind, Digest(like.context), sender or like.sender)


# --- silos lie ---


@pytest.mark.slow
@on_loop
async def test_a_key_share_that_was_not_committed_to_is_refused_and_its_silo_is_not_in_the_key(
    tmp_path: Path,
) -> None:
    """Whoever could choose its share last would choose the joint key."""
    world = ThresholdWorld(tmp_path)
    spec = world.spec()
    async with world.running():
        silos = world.silos()

        def rogue(messages: Sent) -> Sent:
            (mine,) = messages
            honest = KeyReveal.model_validate_json(mine.body)
            raw = bytearray(text_to_bytes("share", honest.share))
            raw[0] ^= 1
            return (resigned(world, honest.model_copy(update={"share": to_text(bytes(raw))}), mine),)

        silos[1].tampers["reveal"] = rogue
        view = await world.run_job(spec, silos)
        assert "its key share is not the one it committed to" in str(silos[1].faults[0])
        honest = [silos[0], silos[2], silos[3]]
        assert view["history"][0]["survivors"] == [silo.name for silo in honest]
        assert await world.model(view["model"]) == oracle_model(spec, honest)


@pytest.mark.slow
@on_loop
async def test_a_silo_that_repeats_anothers_digests_ends_the_round_unopened(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        victim: list[CiphertextManifest] = []
        silos[0].tampers["manifest"] = lambda sent: (
            victim.append(CiphertextManifest.model_validate_json(sent[0].body)),
            sent,
        )[1]

        def copied(messages: Sent) -> Sent:
            world.wait_until(lambda one: "silo-1" in one.desk.answered("manifest"))
            mine = CiphertextManifest.model_validate_json(messages[0].body)
            stolen = {"bodies": victim[0].bodies, "masks": victim[0].masks}
            return (resigned(world, mine.model_copy(update=stolen), messages[0]),)

        silos[1].tampers["manifest"] = copied
        view = await world.run_job(world.spec(), silos)
        assert (view["openings"], view["history"][0]["outcome"]) == (0, "aborted")
        assert "a part is named twice" in view["history"][0]["reason"]
        assert not any("upload" in silo.sent for silo in silos)


@pytest.mark.slow
@on_loop
async def test_ciphertexts_before_all_manifests_are_known_and_partials_before_the_sum_are_not_taken(
    tmp_path: Path,
) -> None:
    world = ThresholdWorld(tmp_path)
    early: list[int] = []
    async with world.running():
        silos = world.silos()

        def tries(name: str) -> Bend:
            def bend(messages: Sent) -> Sent:
                path = f"/v1/rounds/{messages[0].context}/files/{name}/0"
                early.append(world.call("PUT", "silo-1", path, b"x").status_code)
                early.append(
                    world.call("GET", "silo-1", f"/v1/rounds/{messages[0].context}/files/masks/0").status_code
                )
                return messages

            return bend

        silos[0].tampers["manifest"] = tries("bodies")
        view = await world.run_job(world.spec(), silos)
        assert early == [409, 409]
        assert view["history"][0]["outcome"] == "opened"


@pytest.mark.slow
@on_loop
async def test_ciphertexts_that_are_not_the_signed_ones_are_refused_when_they_come(tmp_path: Path) -> None:
    """Its sender hears it, and no opening is used up."""
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos(silo_2={"uploads": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])})
        view = await world.run_job(world.spec(), silos)
        assert "its bodies are not the ones it signed" in str(silos[1].faults[0])
        assert "upload: nothing of silo-2" in view["history"][0]["reason"]
        assert view["openings"] == 0


@pytest.mark.slow
@on_loop
async def test_a_partial_decryption_that_is_not_the_signed_one_is_refused(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()

        def other_parts(messages: Sent) -> Sent:
            word = PartialDecryption.model_validate_json(messages[0].body)
            other = word.model_copy(update={"parts": (Digest("ab" * 32),) * len(word.parts)})
            return (resigned(world, other, messages[0]),)

        silos[1].tampers["partial"] = other_parts
        view = await world.run_job(world.spec(), silos)
        assert "part 0 here is not the one it signed" in str(silos[1].faults[0])
        assert view["history"][0]["outcome"] == "aborted"
        assert "partial: nothing of silo-2" in view["history"][0]["reason"]


# --- the aggregator lies ---


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["another's share", "own left out", "forged"])
@on_loop
async def test_a_silo_shown_other_key_shares_joins_no_key(tmp_path: Path, lie: str) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]

        def swapped(inbox: Sent) -> Sent:
            rest = tuple(one for one in inbox if one.sender != "silo-2")
            other = next(one for one in inbox if one.sender == "silo-3")
            if lie == "own left out":
                return tuple(one for one in inbox if one.sender != "silo-1")
            if lie == "another's share":
                mine = next(one for one in inbox if one.sender == "silo-2")
                return (*rest, resigned(world, KeyReveal.model_validate_json(other.body), mine))
            return (*rest, other.model_copy(update={"sender": "silo-2"}))

        lied_to.shown["manifest"] = swapped
        view = await world.run_job(world.spec(), silos)
        wanted = BadJointKey if lie == "another's share" else SignatureRejected
        assert isinstance(lied_to.faults[0], wanted)
        assert "manifest" not in lied_to.sent
        assert (view["history"][0]["outcome"], view["openings"]) == ("aborted", 0)


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["a manifest left out", "the sum of fewer", "other masks", "no sum"])
@on_loop
async def test_a_silo_shown_a_sum_that_is_not_the_cohorts_helps_to_open_nothing_and_says_so(
    tmp_path: Path, lie: str
) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]

        def swapped(inbox: Sent) -> Sent:
            summed, *manifests = inbox
            body = SumManifest.model_validate_json(summed.body)
            if lie == "a manifest left out":
                return (summed, *manifests[:-1])
            if lie == "no sum":
                return ()
            change: dict[str, Any] = {"masks": (Digest("ab" * 32),)}
            if lie == "the sum of fewer":
                change = {"silos": body.silos[:-1], "manifests": body.manifests[:-1]}
            return (resigned(world, body.model_copy(update=change), summed, AGGREGATOR), *manifests)

        lied_to.shown["partial"] = swapped
        view = await world.run_job(world.spec(), silos)
        assert isinstance(lied_to.faults[0], OutOfOrder if lie == "no sum" else BadSum)
        assert [message.kind for sent in lied_to.sent["partial"] for message in sent] == ["refusal"]
        assert list((tmp_path / "silo-1").rglob("partial-*")) == []
        assert view["history"][0]["outcome"] == "aborted"
        assert "silo-1 does not go on (sum.refused)" in view["history"][0]["reason"]


@pytest.mark.slow
@on_loop
async def test_a_silo_gives_no_second_partial_decryption_for_another_sum_also_after_a_restart(
    tmp_path: Path,
) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        asked = silos[0]

        def another(inbox: Sent) -> Sent:
            summed, *manifests = inbox
            body = SumManifest.model_validate_json(summed.body)
            other = body.model_copy(update={"bodies": (Digest("cd" * 32),) * len(body.bodies)})
            return (resigned(world, other, summed, AGGREGATOR), *manifests)

        # It has signed its one partial decryption when it crashes; on its return it is shown another sum.
        asked.crashes = ("before", "partial")
        before: list[bytes] = []

        def on_return() -> None:
            (stored,) = asked.directory.rglob("threshold.json")
            before.append(stored.read_bytes())
            asked.shown["partial"] = another

        asked.on_return = on_return
        view = await world.run_job(world.spec(), silos)
        state = SiloState.from_bytes(before[0])
        assert "partial" in state.signed
        assert state.secret is None, "the secret share is gone with the signature"
        assert isinstance(asked.faults[0], Equivocation)
        assert "helped to open another sum" in str(asked.faults[0])
        assert all(message.kind == "refusal" for sent in asked.sent["partial"] for message in sent)
        assert view["history"][0]["outcome"] == "aborted"


@pytest.mark.slow
@on_loop
async def test_a_silo_shown_two_sets_of_manifests_uploads_under_one_alone(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        lied_to = silos[0]
        lied_to.crashes = ("before", "upload")

        def other_set(inbox: Sent) -> Sent:
            victim = next(one for one in inbox if one.sender == "silo-2")
            body = CiphertextManifest.model_validate_json(victim.body)
            changed = body.model_copy(update={"masks": (Digest("ef" * 32),) * len(body.masks)})
            return (*(one for one in inbox if one.sender != "silo-2"), resigned(world, changed, victim))

        lied_to.on_return = lambda: lied_to.shown.update({"upload": other_set})
        view = await world.run_job(world.spec(), silos)
        assert isinstance(lied_to.faults[0], Equivocation)
        assert [message.kind for message in lied_to.sent["upload"][-1]] == ["refusal"]
        assert "upload: silo silo-1 does not go on" in view["history"][0]["reason"]
        assert view["openings"] == 0, "what was not agreed on is not recorded as opened"
        assert not any("partial" in silo.sent for silo in silos)


@pytest.mark.slow
@on_loop
async def test_a_silo_judges_the_minimum_by_its_own_threat_model_before_it_makes_a_key(
    tmp_path: Path,
) -> None:
    world = ThresholdWorld(tmp_path)
    strict = (
        threshold_policy()
        .replace("max_colluding: 1", "max_colluding: 2")
        .replace("min_silos_open: 3", "min_silos_open: 4")
        .replace("max_dropouts: 1", "max_dropouts: 0")
    )
    async with world.running():
        silos = world.silos(silo_1={"own_policy": strict})
        view = await world.run_job(world.spec(), silos)
        assert isinstance(silos[0].faults[0], WeakTerms)
        assert "two honest silos stay in every sum" in str(silos[0].faults[0])
        assert silos[0].sent == {}
        assert view["history"][0]["survivors"] == ["silo-2", "silo-3", "silo-4"]


def test_weak_terms_are_refused_before_anything_is_charged_trained_or_started(tmp_path: Path) -> None:
    """A silo judges in ``prepare``, which comes before its ledger is asked."""
    federation = threshold_federation()
    strict = (
        threshold_policy()
        .replace("max_colluding: 1", "max_colluding: 2")
        .replace("min_silos_open: 3", "min_silos_open: 4")
        .replace("max_dropouts: 1", "max_dropouts: 0")
    )
    seat = Seat(
        plan=federation.plan(federation.job_spec(scheme="threshold_bfv"), he="tbfv-8192-200", servers=()),
        silo=SiloId(PartyId("silo-1")),
        aggregator=AGGREGATOR,
        identity=federation.identity("silo-1", tmp_path / "silo-1"),
        charter=federation.charter,
        policies=(load_threat_model(federation.policy_text), load_threat_model(strict)),
        delivery=cast(Delivery, None),  # nothing is sent
        directory=tmp_path / "secrets",
        openfhe=OpenFhe(tmp_path / "nowhere"),
    )
    with pytest.raises(WeakTerms, match="two honest silos stay in every sum"):
        ThresholdHalf(seat).prepare()
    assert not (tmp_path / "secrets").exists()
    lenient = replace(seat, policies=seat.policies[:1])
    with pytest.raises(ConfigurationError, match=r"threshold_he\.python"):
        ThresholdHalf(lenient).prepare()


# --- what is where ---


@pytest.mark.slow
@on_loop
async def test_evidence_holds_no_key_share_no_ciphertext_and_no_partial_decryption(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running() as aggregator:
        silos = world.silos()
        await world.run_job(world.spec(), silos)
        context = silos[0].sent["commit"][0][0].context
        with aggregator.state.store.read() as view:
            kinds = {
                kind: len(view.messages(context, kind))  # type: ignore[arg-type]
                for kind in (
                    "threshold_commit",
                    "threshold_reveal",
                    "threshold_manifest",
                    "threshold_sum",
                    "threshold_partial",
                )
            }
        assert kinds == {
            "threshold_commit": 4,
            "threshold_reveal": 0,
            "threshold_manifest": 4,
            "threshold_sum": 1,
            "threshold_partial": 4,
        }


@pytest.mark.slow
@on_loop
async def test_a_silos_state_is_its_own_and_never_at_the_aggregator(tmp_path: Path) -> None:
    world = ThresholdWorld(tmp_path)
    async with world.running():
        silos = world.silos()
        seen: list[tuple[int, str]] = []

        def look(messages: Sent) -> Sent:
            (stored,) = silos[0].directory.rglob("threshold.json")
            secret = SiloState.from_bytes(stored.read_bytes()).secret
            assert secret is not None
            raw = text_to_bytes("secret", secret)
            for path in files_under(tmp_path / "aggregator"):
                held = path.read_bytes()
                assert secret.encode() not in held
                assert raw not in held
            seen.append((stat.S_IMODE(stored.stat().st_mode), secret))
            return messages

        silos[0].tampers["upload"] = look
        await world.run_job(world.spec(), silos)
        assert [mode for mode, _ in seen] == [0o600]


# --- no OpenFHE, and who may use which ---


def test_a_party_that_its_own_threat_model_asks_for_openfhe_does_not_start_without(tmp_path: Path) -> None:
    federation = threshold_federation()
    federation.identity("aggregator", tmp_path / "aggregator")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    settings = AggregatorSettings(
        state_dir=tmp_path / "aggregator", listen="127.0.0.1:0", threshold_he={"python": broken}
    )
    with pytest.raises(ConfigurationError, match=r"threshold_he\.python.*make threshold-he"):
        assemble_aggregator(settings)
    config = tmp_path / "silo.yaml"
    text = (
        "state_dir: state\naggregator_url: https://a.test\nthreat_model: demo-threshold-bfv\n"
        "datasets: {cardio: {path: p.csv, purpose: test}}\nthreshold_he: {python: python}\n"
    )
    config.write_text(text)
    own = load_threat_model(demo_policy_text("threshold_bfv"))
    with pytest.raises(ConfigurationError, match=r"threshold_he\.python.*make threshold-he"):
        assert_scheme_runs(own, read_settings(config))


def test_settings_that_name_no_interpreter_are_refused_when_they_are_read(tmp_path: Path) -> None:
    silo, server = tmp_path / "silo.yaml", tmp_path / "server.yaml"
    silo.write_text(
        "state_dir: state\naggregator_url: https://a.test\nthreat_model: demo-hospitals\n"
        "datasets: {cardio: {path: p.csv, purpose: test}}\nthreshold_he: {python: nowhere/python}\n"
    )
    server.write_text("state_dir: state\nlisten: 127.0.0.1:0\nthreshold_he: {python: nowhere/python}\n")
    with pytest.raises(ConfigurationError, match=r"threshold_he\.python: expected a Python interpreter"):
        read_settings(silo)
    with pytest.raises(ConfigurationError, match=r"threshold_he\.python: expected a Python interpreter"):
        load_settings(server, AggregatorSettings)


def test_settings_keep_the_link_by_which_python_finds_its_environment(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "real").write_text("")
    (tmp_path / "bin" / "python").symlink_to(tmp_path / "real")
    server = tmp_path / "server.yaml"
    server.write_text("state_dir: state\nlisten: 127.0.0.1:0\nthreshold_he: {python: bin/python}\n")
    settings = load_settings(server, AggregatorSettings).threshold_he
    assert settings is not None
    assert settings.python == tmp_path / "bin" / "python"


def test_an_officer_without_openfhe_checks_and_explains_a_threat_model_that_asks_for_it() -> None:
    for command in ("lint", "explain"):
        answer = CliRunner().invoke(policy, [command, "demo-threshold-bfv"])
        assert answer.exit_code == 0, answer.output
    linted = CliRunner().invoke(policy, ["lint", "demo-threshold-bfv"])
    assert "every silo and the aggregator need OpenFHE" in linted.output


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("behaviour: honest_but_curious", "behaviour: malicious"), "threshold_ckks_malicious_aggregator"),
        (("colludes_with_silos: 0", "colludes_with_silos: 1"), "threshold_ckks_colluders"),
        (("max_colluding: 0", "max_colluding: 1"), "threshold_ckks_colluders"),
    ],
)
def test_threshold_ckks_is_for_a_curious_aggregator_that_nobody_helps(
    change: tuple[str, str], rule: str
) -> None:
    text = demo_policy_text("threshold_ckks")
    load_threat_model(text)
    with pytest.raises(PolicyInvalid) as invalid:
        load_threat_model(text.replace(*change))
    assert [finding.rule for finding in invalid.value.findings] == [rule]
    # The same assumptions are kept by threshold_bfv.
    load_threat_model(text.replace(*change).replace("scheme: threshold_ckks", "scheme: threshold_bfv"))


def test_words_that_leave_a_silo_name_what_went_wrong() -> None:
    assert finding_of(BadJointKey("x")).rule == "scheme.bad_joint_key"

"""Results of attacks in a pack: the verifier believes no word about another job or model, or of who asked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sealsum_verify.verify import CHECKS, verify_pack

from privacy.canonical import canonical_bytes
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import MalformedMessage, NotAllowed
from privacy.plan import DpTerms
from privacy.wire.attack_results import AttackOutcome, AttackResult, AttackSubject
from privacy.wire.envelope import Envelope, parse_envelope
from sealsum.attack.cohort import DELTA
from sealsum.attack.effort import Effort
from sealsum.attack.job_noise import audit_job_noise
from sealsum.attack.outcome import Findings, Outcome
from sealsum.attack.suite import ATTACKS, Result, attacks_on
from sealsum.attack.vouching import Voucher
from tests.evidence_pack import files_of, resigned, shared_pack, shared_records


def vouched(sender: str = "silo-1", verdict: str = "consistent", **changes: Any) -> dict[str, Any]:
    records = shared_records()
    said = AttackResult(
        job=records.job.job,
        job_digest=records.job.digest,
        model=records.model,
        suite="quick",
        version="1",
        results="ab" * 32,
        outcomes=(AttackOutcome(attack="canaries", protection="noise", verdict=verdict),),  # type: ignore[arg-type]  # as parametrised
        at="2026-06-30T00:00:00Z",
    ).model_copy(update=changes)
    envelope = records.federation.sign(said, "attack_result", records.job.digest, sender)
    return envelope.model_dump(mode="json")


def verified(*results: dict[str, Any]) -> Any:
    files = {**files_of(shared_pack()), "tests/vouched.json": canonical_bytes(list(results))}
    records = shared_records()
    return verify_pack(resigned(files, records), records.federation.officers.digest)


def test_a_pack_tells_who_vouched_for_which_suite() -> None:
    report = verified(vouched(), vouched("silo-2", "VIOLATED"))
    assert report.verified, report.fault
    assert report.summary["attacked"] == {
        "silo-1": "quick as claimed at 2026-06-30T00:00:00Z",
        "silo-2": "quick NOT AS CLAIMED at 2026-06-30T00:00:00Z",
    }
    assert verify_pack(shared_pack()).summary["attacked"] == {}


@pytest.mark.parametrize(
    "results",
    [
        (vouched(model="7" * 64),),
        (vouched(job_digest="7" * 64),),
        (vouched("researcher"),),
        (vouched("server-0"),),
        (vouched(), vouched(verdict="VIOLATED")),
        (vouched() | {"sender": "silo-2"},),
    ],
    ids=["another model", "another job", "who asked", "a server", "twice", "another signer"],
)
def test_what_vouches_for_nothing_fails_the_pack(results: tuple[dict[str, Any], ...]) -> None:
    report = verified(*results)
    assert not report.verified
    assert report.passed == len(CHECKS) - 1
    assert report.fault.entry == "tests/vouched.json"


# --- who vouches, and how ---


class _Aggregator:
    """Shows a job, and takes what is handed in."""

    def __init__(self, job: Envelope, model: str) -> None:
        self._subject = AttackSubject(job=job, model=model, results=())
        self.taken: list[bytes] = []

    def get_bytes(self, path: str, *, limit: int) -> bytes:
        if path == "/v1/charter":
            return canonical_bytes(shared_records().federation.endorsed_charter)
        return canonical_bytes(self._subject)

    def put_bytes(self, path: str, raw: bytes) -> None:
        self.taken.append(raw)


def test_a_silo_hands_in_what_came_out_bound_to_the_job_and_its_model(tmp_path: Path) -> None:
    records = shared_records()
    aggregator = _Aggregator(records.job_envelope, records.model)
    member = Voucher(records.identity("silo-1"), aggregator)  # type: ignore[arg-type]  # in memory
    subject = member.subject(records.job.job, tmp_path)
    outcome = Outcome("canaries", "noise", True, True, "ε ≥ 9", "claim ε = 1", {})
    result = Result("quick", ((ATTACKS[0], Findings((outcome,))),), 1.0)
    said = member.hand_in(subject, result, b"{}", datetime(2026, 6, 30, tzinfo=UTC))
    assert not said.passed
    (raw,) = aggregator.taken
    report = verified(json.loads(raw))
    assert report.verified, report.fault
    assert parse_envelope(raw).sender == "silo-1"


def test_nobody_vouches_for_her_own_job_or_for_one_that_she_did_not_ask_about(tmp_path: Path) -> None:
    records = shared_records()
    aggregator = _Aggregator(records.job_envelope, records.model)
    with pytest.raises(NotAllowed, match="researcher asked for it"):
        Voucher(records.identity("researcher"), aggregator).subject(records.job.job, tmp_path)  # type: ignore[arg-type]  # in memory
    with pytest.raises(MalformedMessage, match="expected it, got job"):
        Voucher(records.identity("silo-1"), aggregator).subject("other", tmp_path)  # type: ignore[arg-type]  # in memory


# --- the job's own noise ---


def _dp(**terms: Any) -> DpTerms:
    job = shared_records().job.dp
    assert job is not None
    return job.model_copy(update=terms)


def test_a_job_under_dp_is_attacked_under_its_own_noise() -> None:
    job = shared_records().job
    assert [one.title for one in attacks_on(job)][len(ATTACKS) :] == [f"Noise of job {job.job}"]
    assert attacks_on(job.model_copy(update={"dp": None})) == ATTACKS


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "model"), [(0.8, "local"), (3.0, "distributed"), (40.0, "distributed")])
def test_a_jobs_noise_keeps_its_claim_and_its_absence_is_seen(sigma: float, model: str) -> None:
    effort = Effort(canary_runs=4, update_runs=1, shadows=1, matching_steps=1, noise_levels=())
    shares = 3 if model == "distributed" else None
    kept, bare = audit_job_noise(
        _dp(noise_multiplier=sigma, model=model, noise_shares=shares), effort
    ).outcomes
    assert (kept.verdict, bare.verdict) == ("consistent", "succeeds")
    claim = epsilon([DpEvent(sample_rate=1.0, noise_multiplier=sigma, steps=1)], DELTA)
    assert kept.figures["epsilon_claimed"] == pytest.approx(claim)

"""Job after job under faults until the time is over, each judged when it has ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from privacy.ids import JobId, ServerId, SiloId
from privacy.keystore import load_identity, read_file
from privacy.plan import JobSpec
from sealsum.chaos.cases import Strike, strikes
from sealsum.chaos.judging import log_violations, verdict_violations, view_violations
from sealsum.chaos.running import PARTIES, SILOS, Running, role_of, start_federation
from sealsum.chaos.tally import Tally
from sealsum.demo.cast import FEDERATION, RESEARCHER, SHARE_SERVERS
from sealsum.demo.folder import prepare_folder
from sealsum.demo.job import DATASET, DemoTerms, demo_terms
from sealsum.demo.options import POLICIES
from sealsum.demo.pack import REJECTED, VERIFY_S
from sealsum.demo.parties import Programs
from sealsum.demo.ports import loopback_without_proxy
from sealsum.demo.results import Verdict
from sealsum.demo.supervise import Supervisor
from sealsum.evidence import build_pack
from sealsum.evidence_verdict import verifier
from sealsum.job_view import ENDED, JobView
from sealsum.policy_file import read_policy
from sealsum.sdk import Federation, JobHandle
from silo_agent.ledger.books import ledger_path

ROUNDS = 40
EPSILON = 0.05
"""Of a job: hospitals' lifetime caps are to last for hours, and nobody uses these models."""
STUCK_S = 300.0
"""A job of which no round ends for so long is stuck."""
_LOOK_S = 0.25

Progress = Callable[[str, float], None]
"""Told what goes on, and for what share of the time it has gone on."""


@dataclass
class _Found:
    """What has been found so far."""

    cases: set[str] = field(default_factory=set)
    kills: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    views: list[JobView] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class _Telling:
    """How far the run has come."""

    progress: Progress
    began: float
    lasts_s: float

    @property
    def until(self) -> float:
        """When nobody is struck any more."""
        return self.began + self.lasts_s

    def strike(self, job: JobHandle, strike: Strike, kills: int) -> None:
        """Say who was struck."""
        share = (time.monotonic() - self.began) / self.lasts_s
        self.progress(f"{job.spec.job}, {kills} kills; {strike.kind} {strike.party}", share)


def run_chaos(minutes: float, seed: int, out: Path, progress: Progress) -> Tally:
    """Run a federation of real processes under faults, and judge every job.

    Raises:
        ConfigurationError: the folder is not usable, or the verifier is missing.
        ChildFailed: a server did not come back after it was killed; its last words are in the message.
    """
    verifier()  # missing, it would be missed only at the very end
    policy, folder = read_policy(POLICIES["additive"]), prepare_folder(out)
    terms = demo_terms(ROUNDS, EPSILON, seed)
    found = _Found()
    with loopback_without_proxy(), Supervisor(folder.logs) as supervisor:
        progress("enrolling and starting 7 parties", 0.0)
        running = start_federation(supervisor, folder, policy, Programs(sys.executable), seed)
        began = time.monotonic()
        to_come = strikes(seed, PARTIES)
        with Federation.connect(folder.state(RESEARCHER), aggregator_url=running.url) as federation:
            while (passed := time.monotonic() - began) < 60 * minutes and not found.violations:
                progress(f"job {len(found.views) + 1}", passed / (60 * minutes))
                job = federation.submit(_spec(terms, federation, len(found.views) + 1), terms.initial)
                telling = _Telling(progress, began, 60 * minutes)
                view = _through(job, running, to_come, found, telling)
                found.views.append(view)
                found.violations += _judged(federation, job, view, running, found)
    return _tally(found, seed, (time.monotonic() - began) / 60)


def _spec(terms: DemoTerms, federation: Federation, number: int) -> JobSpec:
    spec = terms.job(FEDERATION, federation.charter.digest)
    return spec.model_copy(update={"job": JobId(f"chaos-{number}")})


def _through(
    job: JobHandle, running: Running, to_come: Iterator[Strike], found: _Found, telling: _Telling
) -> JobView:
    """Strike the federation again and again until the time is over; the job's last view, ended or stuck."""
    view, strike = job.now(), next(to_come)
    moved = time.monotonic()
    struck: float | None = None
    while view.state not in ENDED and time.monotonic() - moved < STUCK_S:
        before = len(view.history)
        view = job.view(view, _LOOK_S) or view
        now = time.monotonic()
        if len(view.history) > before or view.state in ENDED:
            moved = now
            if struck is not None:
                found.recoveries_s.append(now - struck)
                struck = None
        if struck is None and view.history and now < telling.until and view.state not in ENDED:
            time.sleep(strike.after_s)
            view, moved = job.now(), time.monotonic()  # a round that ended meanwhile is no recovery
            struck = moved
            running.strike(strike)
            found.cases.add(f"{strike.kind} {role_of(strike.party)}")
            found.kills += strike.kind == "kill"
            telling.strike(job, strike, found.kills)
            strike = next(to_come)
    return view


def _judged(
    federation: Federation, job: JobHandle, view: JobView, running: Running, found: _Found
) -> Iterator[str]:
    yield from view_violations(view)
    if view.state not in ENDED:
        return
    logs = {name: federation.server_log(name) for name in SHARE_SERVERS}
    lines = {name: log.lines for name, log in logs.items()}
    yield from log_violations(found.logs, lines)
    found.logs = lines
    folder = running.folder
    ledgers = {name: read_file(ledger_path(folder.state(name), DATASET)) for name in SILOS}
    pack = build_pack(
        job.evidence(),
        {ServerId(name): log for name, log in logs.items()},  # type: ignore[arg-type]  # names of the cast
        {SiloId(name): ledger for name, ledger in ledgers.items()},
        load_identity(folder.state(RESEARCHER)),
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    path = folder.root / f"{view.job}.zip"
    path.write_bytes(pack)
    verdict = _verdict(running, path)
    yield from verdict_violations(view.job, verdict)
    if verdict.verified:
        path.unlink()


def _verdict(running: Running, pack: Path) -> Verdict:
    said = pack.with_suffix(".txt")
    command = [verifier(), str(pack), "--officers", running.officers]
    child = running.supervisor.start(f"verify-{pack.stem}", command, stdout=said)
    code = running.supervisor.finish(child, VERIFY_S, accept=(0, REJECTED))
    return Verdict(code, tuple(said.read_text(encoding="utf-8").splitlines()))


def _tally(found: _Found, seed: int, minutes: float) -> Tally:
    rows = [row for view in found.views for row in view.history]
    opened = sum(row.outcome == "opened" for row in rows)
    return Tally(
        seed=seed,
        minutes=minutes,
        cases=tuple(sorted(found.cases)),
        kills=found.kills,
        jobs=len(found.views),
        finished=sum(view.state == "finished" for view in found.views),
        opened=opened,
        ended_by_name=len(rows) - opened,
        recoveries_s=tuple(found.recoveries_s),
        violations=tuple(found.violations),
    )

"""The agent's part in approvals: learns of jobs, applies the silo's rules, says where each stands, and lets
no round begin without an approval that lies on disk.

Asks for news when told that there are some, and now and then; people decide in processes of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from policies.findings import PolicyRefusal
from policies.loader import LoadedPolicy
from privacy.approval import RULE, JobApproval, instant, sign_approval
from privacy.errors import PeerFault, SealsumError
from privacy.ids import Digest, JobId
from privacy.keystore import Identity
from privacy.plan import JobSpec
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, Verified, sign_message
from privacy.wire.job_envelope import open_job
from privacy.wire.readiness import JobReadiness
from silo_agent.approvals.case import Case, Office, case_of, open_office
from silo_agent.approvals.decisions import Decisions
from silo_agent.approvals.recording import logged_decisions, record_decision, record_seen
from silo_agent.approvals.standing import Standing, State, refuse_unless_approved, standing_of
from silo_agent.approvals.stored_jobs import StoredJobs
from silo_agent.delivery import POLL_S, Delivery
from silo_agent.settings import SiloSettings

_log = logging.getLogger(__name__)

LOOK_S = 10.0
"""A silo that is busy with one job looks this often for others, and for decisions that were taken."""
WAITING_POLL_S = 2.0
"""How long an agent lets a server hold its answer while somebody here may decide any moment."""
RULE_DAYS = 365
"""How long a rule's approval holds; people's hold as long as they say."""


class ApprovalDesk:
    """Jobs before this silo, from the agent's side."""

    def __init__(
        self,
        settings: SiloSettings,
        identity: Identity,
        own: LoadedPolicy,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._own = own
        self._monotonic = monotonic
        self._jobs = StoredJobs(settings.state_dir)
        self._decisions = Decisions(settings.state_dir, logged_decisions(settings.state_dir, identity))
        self._cases: dict[Digest, Case] = {}
        self._told: dict[Digest, JobReadiness] = {}
        self._seen = 0
        self._next_look = 0.0
        self._office: Office | None = None

    def meet(self, charter: Charter) -> None:
        """Judge by this charter from now on; every open job is judged, and reported, anew.

        Raises:
            ConfigurationError: as ``open_office``.
        """
        self._office = open_office(self._settings, self._identity, charter, self._own)
        self._cases.clear()
        self._told.clear()
        self._seen = 0
        self._next_look = 0.0

    @property
    def _poll_s(self) -> float:
        """How long the agent may let a server hold its answer: not long while somebody here may decide."""
        return WAITING_POLL_S if self._waits_for_people else POLL_S

    @property
    def _waits_for_people(self) -> bool:
        return any(one.decision == "waiting" for one in self._told.values())

    @property
    def refused_on_budget(self) -> bool:
        """Whether an open job cannot be paid for here."""
        return any(one.rule.startswith("budget.") for one in self._told.values())

    def next_offer(self, delivery: Delivery, after: Digest | None) -> Envelope | None:
        """Look at the queue if it is time, then wait for an offer; without one there may be news of jobs.

        Raises:
            Unreachable, PeerFault: the aggregator does not answer, or answers nonsense.
        """
        self.look(delivery)
        offer = delivery.next_offer(after, self._seen, self._poll_s)
        if offer is None:
            self._next_look = 0.0
        return offer

    def look(self, delivery: Delivery) -> None:
        """If it is time: fetch new jobs, judge them, and tell the aggregator where each open job stands.

        Raises:
            Unreachable, PeerFault: the aggregator does not answer, or answers nonsense.
        """
        if self._monotonic() < self._next_look:
            return
        more = True
        while more:
            queue = delivery.job_queue(self._seen)
            for envelope in queue.jobs:
                self._take(envelope)
            more = bool(queue.jobs) and queue.newest > queue.last
            self._seen = queue.last
        self._jobs.end_all_but(queue.open)
        for digest in [digest for digest in self._cases if digest not in queue.open]:
            self._forget(digest)
        for case in list(self._cases.values()):
            self._report(case, delivery)
        self._next_look = self._monotonic() + (WAITING_POLL_S if self._waits_for_people else LOOK_S)

    def assert_approved(self, job: Verified[JobSpec], now: datetime) -> None:
        """Whether this job may begin a round now, by the decisions that lie on disk.

        A job that was never shown before is stored and put before the silo's rules first.

        Raises:
            PolicyRefusal: it is waiting or rejected, or a stored decision is not as it was signed.
        """
        case = self._case(job)
        refuse_unless_approved(self._standing(case, now), case.spec.job)

    def _take(self, envelope: Envelope) -> None:
        try:
            self._case(open_job(envelope, self._known_office.charter))
        except PeerFault as error:  # signed under another charter, or by nobody: no job of ours
            _log.warning("job_not_taken", extra={"reason": str(error)})

    def _case(self, job: Verified[JobSpec]) -> Case:
        """The case of a job; a new one is stored, judged, and put before the silo's rules."""
        digest = job.message.digest
        case = self._cases.get(digest)
        if case is None or case.job.envelope != job.envelope:
            if self._jobs.keep(job):
                record_seen(self._settings.state_dir, self._identity, job.message, job.sender)
            case = self._cases[digest] = case_of(self._known_office, job, datetime.now(UTC))
            self._apply_rules(case, datetime.now(UTC))
            _log.info("job_shown", extra={"job": case.spec.job, "findings": [f.rule for f in case.findings]})
        return case

    def _apply_rules(self, case: Case, now: datetime) -> None:
        """Approve by the first rule that covers the job, unless somebody here has decided already."""
        bench = self._known_office.bench
        if not bench.requirement.automatic or any(
            not finding.rule.startswith("budget.")
            for finding in case.findings  # the ledger refuses those
        ):
            return
        if self._standing(case, now).state != "waiting":
            return
        terms, researcher = case.request.terms, case.request.researcher.id
        for name, rule in sorted(bench.rules.items()):
            alone = case.request.epsilon_alone
            if not rule.broken_by(terms, researcher, case.request.purpose, alone):
                approval = JobApproval(
                    **dict(terms),
                    decision="approve",
                    by=name,
                    role=RULE,
                    at=instant(now),
                    expires_at=instant(now + timedelta(days=RULE_DAYS)),
                )
                signed = sign_approval(approval, self._identity.signing)
                file = record_decision(
                    self._decisions, self._settings.state_dir, self._identity, approval, signed
                )
                _log.info("approved_by_rule", extra={"job": case.spec.job, "rule": name, "file": file})
                return

    def _standing(self, case: Case, now: datetime) -> Standing:
        decisions = self._decisions.about(case.digest)
        return standing_of(self._known_office.bench, case.request, decisions, instant(now))

    def _report(self, case: Case, delivery: Delivery) -> None:
        readiness = self._readiness(case)
        if self._told.get(case.digest) == readiness:
            return
        key, silo = self._identity.signing, self._known_office.silo
        delivery.say_ready(JobId(case.spec.job), sign_message(readiness, "readiness", case.digest, silo, key))
        self._told[case.digest] = readiness
        _log.info(
            "readiness",
            extra={"job": case.spec.job, "decision": readiness.decision, "rule": readiness.rule},
        )

    def _readiness(self, case: Case) -> JobReadiness:
        """Where a job stands, in words that may leave the silo."""
        finding = case.findings[0] if case.findings else None
        state: State = "rejected"
        if finding is None:
            try:
                standing = self._standing(case, datetime.now(UTC))
                state = standing.state
                refuse_unless_approved(standing, case.spec.job)
            except PolicyRefusal as refusal:
                # A decision that was tampered with has no standing: it rejects.
                finding = refusal.findings[0]
        if finding is None:
            return JobReadiness(silo=self._known_office.silo, job_digest=case.digest, decision="approved")
        return JobReadiness(
            silo=self._known_office.silo,
            job_digest=case.digest,
            decision=state,
            rule=finding.rule,
            reason=finding.sentence,
        )

    def _forget(self, digest: Digest) -> None:
        self._cases.pop(digest, None)
        self._told.pop(digest, None)

    @property
    def _known_office(self) -> Office:
        if self._office is None:
            raise SealsumError("approvals: expected a charter to judge by; none was met yet")
        return self._office

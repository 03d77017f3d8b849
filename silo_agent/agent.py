"""The silo's process: dial out, wait for offers, answer each, carry the answer, check how the round ended.

It never listens. It ends when told to, when ``until_idle`` and its job is over, or when no budget is left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from policies.findings import PolicyRefusal
from policies.loader import LoadedPolicy, load_threat_model
from privacy.errors import LedgerDamaged, NotFound, PeerFault, SealsumError, SignatureRejected
from privacy.ids import Context, SiloId
from privacy.keystore import Identity
from privacy.plan import JobSpec
from privacy.wire.envelope import Envelope, sign_message
from silo_agent.approvals.desk import ApprovalDesk
from silo_agent.attendance import Attendance
from silo_agent.attended import Attended, names_of
from silo_agent.charter_pin import CharterPin, ask_for_charter
from silo_agent.delivery import Delivery
from silo_agent.egress import egress_of
from silo_agent.instance import begin_instance
from silo_agent.ledger.admission import CapReached
from silo_agent.ledger.books import Books
from silo_agent.outbox import Stored
from silo_agent.participation import Site, claimed_job, open_offer_alone
from silo_agent.problems import Interrupted, Stopped, Unreachable
from silo_agent.refusals import refusal_of
from silo_agent.results import open_result
from silo_agent.schemes.catalogue import half_of
from silo_agent.settings import SiloSettings
from silo_agent.training.here import trainer_here
from silo_agent.training.work import TrainerOf
from silo_agent.transport import FederationClient
from silo_agent.whole_ledgers import WholeLedgers

_log = logging.getLogger(__name__)

EXIT_DONE, EXIT_BUDGET = 0, 4


class Agent:
    """One silo's agent. ``stop`` may be called from a signal handler of the thread that runs it."""

    def __init__(
        self,
        settings: SiloSettings,
        identity: Identity,
        own_policy: LoadedPolicy,
        trainer_of: TrainerOf = trainer_here,
    ) -> None:
        """Open ledgers and outbox, and learn the charter in force.

        Raises:
            LedgerDamaged: a ledger does not verify. PeerFault: the aggregator does not answer, or shows
                a charter that does not hold.
        """
        self._settings = settings
        self._identity = identity
        self._own_policy = own_policy
        self._silo = SiloId(identity.pin.party)
        self._stopping, self._leaving = threading.Event(), threading.Event()
        self._waiting = False
        self._after: Context | None = None
        self._job: str | None = None
        self._job_ended = False
        self._budget_refused = False
        self._sent_before = 0
        self._books = Books(identity, settings, own_policy, datetime.now(UTC))
        self._whole = WholeLedgers(self._books, identity)
        self._desk = ApprovalDesk(settings, identity, own_policy)
        self._attendance = Attendance(settings, identity, self._books, self._desk, self._stopping, trainer_of)
        self._instance = begin_instance(settings.state_dir)
        self.pin = CharterPin(settings.state_dir / "charter.json", identity.pin)
        self.egress = egress = egress_of(settings)
        where, stopping = settings.aggregator_url, self._stopping
        with FederationClient(identity, where, proxy=egress, stopping=stopping) as first:
            self.pin.offer(ask_for_charter(first))
        self._meet()
        self.copies = self._attendance.copies
        self.copies.assert_enough(self._site.policies)

    def _meet(self) -> None:
        """Derive who there is, and connections to them, from the charter in force."""
        charter = self._identity.recognised_in(self.pin.charter)
        self._site = Site(
            silo=self._silo,
            verify_key=self._identity.signing.verify_key,
            charter=charter,
            policies=(load_threat_model(charter.policy_text, charter.policy_parents), self._own_policy),
            datasets=self._settings.datasets,
        )
        self._desk.meet(charter)
        self._delivery = Delivery(self._identity, charter, self.egress, self._stopping, self._instance)

    def close(self) -> None:
        """Close connections and release the ledgers."""
        self._attendance.close()
        self._delivery.close()
        self._books.close()

    def stop(self, *, after_the_round: bool = False) -> None:
        """End soon: at once where the agent only waits, else after the step, or the round, it is in."""
        (self._leaving if after_the_round else self._stopping).set()
        if self._waiting:
            raise Interrupted

    def run(self, until_idle: bool) -> int:
        """Serve until told to stop; returns the process's exit code.

        Raises:
            LedgerDamaged, also where a server has seen an entry that is not here; PeerFault where going on
                would be wrong, or (``until_idle``) where the aggregator is gone.
        """
        try:
            self._whole.check(self._delivery)
            self._resume()
            while not self._stopping.is_set():
                if (code := self._exit_code(until_idle)) is not None:
                    return code
                offer = self._next_offer(until_idle)
                if offer is not None:
                    self._answer(offer)
        except (Interrupted, Stopped):
            _log.info("stopped")
        return EXIT_DONE

    def _exit_code(self, until_idle: bool) -> int | None:
        """``None`` while there is something left to do."""
        refused = self._budget_refused or (self._job is None and self._desk.refused_on_budget)
        if self._books.all_spent() or (until_idle and refused):
            return EXIT_BUDGET
        return EXIT_DONE if until_idle and self._job_ended else None

    def _resume(self) -> None:
        """Finish what a crash interrupted: resend complete contributions, byte for byte; drop the others."""
        for context in self._attendance.drop_incomplete():
            _log.warning("resumed", extra={"context": context, "outcome": "dropped; a charge stays"})
        for stored in self._attendance.outbox.pending():
            self._books.settle_if_open(stored.context, datetime.now(UTC))
            try:
                attended = self._reopen(stored)
            except PeerFault as error:  # signed under a roster that is no longer in force
                _log.warning("resumed", extra={"context": stored.context, "outcome": f"dropped: {error}"})
                self._attendance.forget(stored.context)
                continue
            _log.info("resumed", extra={**names_of(attended.plan), "outcome": "resent"})
            self._finish(attended)
            self._after = stored.context
        self._attendance.forget_ended_jobs(self._delivery)

    def _reopen(self, stored: Stored) -> Attended:
        opened = open_offer_alone(stored.contribution.offer, self._site.charter, stored.context)
        offer = opened.message
        dataset = JobSpec.model_validate_json(offer.job.body).dataset
        seat = self._attendance.seat(offer.plan, opened.sender, self._site, self._delivery)
        return Attended(offer.plan, dataset, stored, half_of(seat), train_ms=0.0, own_ms=0.0)

    def _next_offer(self, until_idle: bool) -> Envelope | None:
        try:
            with self._idle():
                offer = self._desk.next_offer(self._delivery, self._after)
            if offer is None and until_idle and self._job is not None:
                self._job_ended = self._delivery.job_has_ended(self._job)
        except Unreachable as error:
            if until_idle:
                raise
            _log.warning("unreachable", extra={"reason": str(error)})
            return None
        return offer

    def _answer(self, envelope: Envelope) -> None:
        """Take part, or say why not. Only a damaged ledger and an order to stop end the agent here."""
        self._after = Context(envelope.context)
        self._job = claimed_job(envelope)
        self._sent_before = self._delivery.sent_bytes
        try:
            attended = self._take_part(envelope)
        except (LedgerDamaged, Stopped):
            raise
        except SealsumError as error:
            self._refuse(Context(envelope.context), error)
            return
        self._finish(attended)

    def _take_part(self, envelope: Envelope) -> Attended:
        try:
            self._whole.check(self._delivery)
            return self._attendance.take_part(envelope, self._site, self._delivery)
        except (SignatureRejected, PolicyRefusal):
            # The offer may rest on a newer charter than the one held.
            if not self._charter_changed():
                raise
        self._whole.check(self._delivery)
        return self._attendance.take_part(envelope, self._site, self._delivery)

    def _charter_changed(self) -> bool:
        before = self.pin.charter
        if self.pin.offer(ask_for_charter(self._delivery.aggregator)) is before:
            return False
        self._delivery.close()
        self._meet()
        self._sent_before = 0
        _log.info("charter", extra={"epoch": self.pin.charter.epoch, "digest": self.pin.charter.digest})
        return True

    def _refuse(self, context: Context, error: SealsumError) -> None:
        self._budget_refused = isinstance(error, CapReached)
        self._attendance.witnessing.refused(context, error)
        self._attendance.forget(context)
        refusal = refusal_of(error, self._silo)
        try:
            self._delivery.refuse(
                context, sign_message(refusal, "refusal", context, self._silo, self._identity.signing)
            )
        except PeerFault as fault:
            _log.warning("refusal_not_taken", extra={"context": context, "reason": str(fault)})

    def _finish(self, attended: Attended) -> None:
        """Carry a contribution, wait for the round's end, and forget the round."""
        names = names_of(attended.plan)
        own_ms = attended.own_ms
        started = time.perf_counter()
        try:
            attended.half.deliver(attended.stored)
            _log.info("uploaded", extra=names)
            own_ms += 1000 * (time.perf_counter() - started)
            self._attendance.foresee(attended)
            attended.half.conclude(attended.stored)
        except (LedgerDamaged, Stopped):
            raise
        except SealsumError as error:
            # The servers that have it may complete the round without the others, or the deadline ends it.
            _log.warning("upload_failed", extra={**names, "reason": str(error)})
        envelope = self._await_result(attended.plan.context)
        if envelope is None:
            self._attendance.forget(attended.plan.context)
            return
        started = time.perf_counter()
        try:
            result = open_result(envelope, attended.plan, self._site.charter)
            # Before the contribution goes: after a crash the result is asked for again.
            self._attendance.remembered.conclude(attended.plan, result, self._silo, self._delivery)
        finally:
            self._attendance.forget(attended.plan.context)
        self._job_ended = result.job_state != "running"
        if self._job_ended:
            self._attendance.job_secrets.forget(attended.plan.job_digest)
            self._attendance.witnessing.conclude(attended.plan, self._site, self._delivery)
        own_ms += 1000 * (time.perf_counter() - started)
        _log.info(
            "round_result",
            extra={
                **names,
                "outcome": result.outcome,
                "reason": result.reason,
                "survived": self._silo in result.survivors,
                "job_state": result.job_state,
                "train_ms": round(attended.train_ms, 1),
                "overhead_ms": round(own_ms, 1),
                "sent_bytes": self._delivery.sent_bytes - self._sent_before,
            },
        )

    def _await_result(self, context: Context) -> Envelope | None:
        """The round's result, however long it takes; ``None`` if the aggregator knows no such round."""
        while True:
            try:
                with self._idle():
                    result = self._delivery.wait_for_result(context)
            except NotFound as error:
                _log.warning("round_unknown", extra={"context": context, "reason": str(error)})
                return None
            except Unreachable as error:
                _log.warning("unreachable", extra={"context": context, "reason": str(error)})
                result = None
            if result is not None:
                return result
            if self._stopping.is_set():
                raise Interrupted

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """Marks a stretch in which nothing is lost if it is cut short."""
        self._waiting = True
        try:
            if self._stopping.is_set() or self._leaving.is_set():
                raise Interrupted
            yield
        finally:
            self._waiting = False

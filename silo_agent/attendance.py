"""One round's effects in their order: from an offer to a contribution that is whole on disk.

Whether each step is allowed is decided by ``participation`` and the ledger; this module fetches, charges,
reads, trains and stores. A crash between any two steps costs budget at most, never privacy.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from privacy.errors import PeerFault
from privacy.ids import Context, Digest, PartyId
from privacy.keystore import Identity
from privacy.plan import JobSpec, RoundPlan
from privacy.query_terms import EvaluationTerms
from privacy.secagg.threshold.interpreter import python_of
from privacy.secagg.threshold.kept import OpenFhe
from privacy.wire.envelope import Envelope
from silo_agent.approvals.desk import ApprovalDesk
from silo_agent.attended import Attended, names_of
from silo_agent.audit_copies import AuditCopies
from silo_agent.checked_model import CheckedModel, check_evaluated
from silo_agent.delivery import Delivery
from silo_agent.encoded import EncodedUpdate
from silo_agent.follow import follow
from silo_agent.footing import assert_able
from silo_agent.job_secrets import JobSecrets
from silo_agent.ledger.books import Books
from silo_agent.ledger.ledger import Ledger, Reserved
from silo_agent.ledger.said import said_of
from silo_agent.outbox import Contribution, Outbox, Stored
from silo_agent.participation import (
    Invitation,
    Site,
    charge_for,
    check_model,
    clear_offer,
    open_offer,
    paid_work,
    work_of,
)
from silo_agent.remembered import Remembered
from silo_agent.round_memory import RoundMemory
from silo_agent.schemes.catalogue import half_of
from silo_agent.schemes.half import SchemeHalf, Seat
from silo_agent.settings import SiloSettings
from silo_agent.training.work import RoundModels, TrainerOf
from silo_agent.witness import Witness
from silo_agent.witnessing import Witnessing

_log = logging.getLogger(__name__)


class Attendance:
    """Takes part in rounds, one at a time, with the silo's ledgers, datasets and outbox."""

    def __init__(
        self,
        settings: SiloSettings,
        identity: Identity,
        books: Books,
        desk: ApprovalDesk,
        stopping: threading.Event,
        trainer_of: TrainerOf,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._books = books
        self._desk = desk
        self._trainer = trainer_of(settings, stopping)
        self._openfhe = OpenFhe(python_of(settings.threshold_he))
        self._memory = RoundMemory(settings.state_dir / "rounds.json")
        self.witnessing = Witnessing(Witness(settings.state_dir, identity, books))
        self.copies = AuditCopies(settings, self.witnessing.witness.log)
        self.outbox = Outbox(settings.state_dir / "outbox")
        self.job_secrets = JobSecrets(settings.state_dir)
        self.remembered = Remembered(settings.state_dir, self.scratch)
        self._foresight: Future[None] | None = None
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="foresight", initializer=_give_way if sys.platform == "linux" else None
        )

    def close(self) -> None:
        """End the thread that computes ahead, OpenFHE, and the trainer."""
        self._thread.shutdown(wait=True)
        self._trainer.close()
        self._openfhe.close()
        self.copies.close()
        self.witnessing.witness.close()

    def take_part(self, envelope: Envelope, site: Site, delivery: Delivery) -> Attended:
        """Answer one offer, in this order (docs/architecture.md, A round, 2):

        (1) signatures, threat models, invitation, round, dataset, logs, approval, model terms; (2) the model,
        hashed here, and, under DP, whether it can be trained privately; (3) a round that is never charged,
        or in which something is signed before it is, is remembered (the ledger remembers the others); (4)
        what the scheme agrees on with the others beforehand; (5) RESERVE, before data are read; (6) read;
        (7) an audit sink has what was logged; BEGIN, before batches and noise are drawn; the log
        is cosigned; (8) train; (9) what the scheme agrees on only now; encode, seal, sign; what the
        algorithm is to remember is staged; (10) outbox; (11) SETTLE.

        Raises:
            SealsumError: the first of these that says no. From (5) on the round stays charged.
        """
        started = time.perf_counter()
        # (1)
        offer, job = open_offer(envelope, site.charter)
        plan = offer.message.plan
        last = max(self._books.last_round(plan.job_digest), self._memory.last_round(plan.job_digest))
        invitation = clear_offer(site, offer, job, last)
        sighting = self.witnessing.sight(offer, site, delivery)
        self._desk.assert_approved(job, datetime.now(UTC))
        _log.info("round_started", extra=names_of(plan))
        for finding in invitation.admitted.tolerated:
            _log.warning("tolerated", extra={**names_of(plan), "rule": finding.rule})
        work = work_of(invitation, site)
        self._trainer.begin(work)
        assert_able(invitation.dataset, self._settings.state_dir)
        # (2)
        model = check_model(invitation, delivery.fetch_model(plan.model, plan.parameters, self.scratch))
        evaluated = self._evaluated(invitation.job, delivery)
        first = self.remembered.first_model(plan, invitation.job, delivery)
        engine = self._trainer.check(RoundModels(model, evaluated, first))
        # (3)
        half = half_of(self.seat(plan, offer.sender, site, delivery))
        if plan.dp is None or not plan.servers:
            self._memory.remember(plan.job_digest, plan.round)
        # (4)
        waiting = time.perf_counter()
        self.forget_ended_jobs(delivery, but=plan.job_digest)
        half.prepare()
        waited_ms = 1000 * (time.perf_counter() - waiting)
        # (5)
        ledger = self._books[invitation.job.dataset]
        reserved = self._reserve(invitation)
        # (6)
        self._trainer.read()
        # (7)
        self.copies.gate(site.policies)
        if reserved is not None:
            ledger.begin(reserved, datetime.now(UTC))
        self.witnessing.attest(sighting, delivery, durably=reserved is None)
        # (8)
        training = time.perf_counter()
        trained = self._trainer.train(paid_work(work, reserved), self.remembered.memory(plan))
        train_ms = 1000 * (time.perf_counter() - training)
        _log.info("trained", extra={**names_of(plan), "train_ms": round(train_ms, 1), "engine": engine})
        # (9), (10)
        waiting = time.perf_counter()
        half.agree()
        waited_ms += 1000 * (time.perf_counter() - waiting)
        encoded = EncodedUpdate(plan, trained.update, trained.weight)
        self.remembered.stage(plan, trained.update)
        stored = self._store(envelope, plan, half, encoded, model.digest, ledger)
        # (11)
        self._books.settle_if_open(plan.context, datetime.now(UTC))
        if self._settings.follow_models and invitation.job.query is None:
            follow(self._settings.state_dir, invitation, self._trainer)
        own_ms = 1000 * (time.perf_counter() - started) - train_ms - waited_ms
        return Attended(plan, invitation.job.dataset, stored, half, train_ms, own_ms)

    def seat(self, plan: RoundPlan, aggregator: PartyId, site: Site, delivery: Delivery) -> Seat:
        """What the round's scheme is given."""
        return Seat(
            plan=plan,
            silo=site.silo,
            aggregator=aggregator,
            identity=self._identity,
            charter=site.charter,
            policies=site.policies,
            delivery=delivery,
            directory=self._secrets / plan.context,
            openfhe=self._openfhe,
        )

    def forget(self, context: Context) -> None:
        """The round is over for this silo: its contribution, its scheme's secrets and what it staged go."""
        self.outbox.remove(context)
        self.remembered.forget(context)
        shutil.rmtree(self._secrets / context, ignore_errors=True)

    def drop_incomplete(self) -> tuple[Context, ...]:
        """Remove what a crash interrupted: parts, and secrets of rounds without a whole contribution."""
        dropped = set(self.outbox.drop_incomplete())
        whole = {stored.context for stored in self.outbox.pending()}
        if self._secrets.is_dir():
            dropped |= {Context(Digest(path.name)) for path in self._secrets.iterdir()} - whole
        for context in dropped:
            self.forget(context)
        return tuple(sorted(dropped))

    def forget_ended_jobs(self, delivery: Delivery, but: Digest | None = None) -> None:
        """Delete what schemes, and later algorithms, keep of other jobs than this one that are over."""
        self.remembered.clear_ended(delivery, but)
        for digest, job in self.job_secrets.jobs().items():
            if digest == but:
                continue
            try:
                if delivery.job_has_ended(job):
                    self.job_secrets.forget(digest)
            except PeerFault as error:  # asked again with the next job, or at the next start
                _log.warning("job_unknown", extra={"job": job, "reason": str(error)})

    def foresee(self, attended: Attended) -> None:
        """While others work, compute in a thread what the job's next reservation needs, if it is next."""
        plan, coming = attended.plan, attended.plan.round + 1
        if plan.dp is None or coming > plan.rounds:
            return
        if not self._books.covers(attended.dataset, plan.job_digest, coming):
            asked = attended.dataset, plan.job_digest, coming, plan.rounds, datetime.now(UTC)
            self._foresight = self._thread.submit(self._books.foresee, *asked)

    def _evaluated(self, job: JobSpec, delivery: Delivery) -> CheckedModel | None:
        """The model that an evaluation is of, hashed here; ``None`` for any other job."""
        query = job.query
        if not isinstance(query, EvaluationTerms):
            return None
        raw = delivery.fetch_model(query.weights, query.model.parameters, self.scratch)
        return check_evaluated(query, raw)

    def _reserve(self, invitation: Invitation) -> Reserved | None:
        if self._foresight is not None:
            self._foresight.result()
            self._foresight = None
        charge = charge_for(invitation)
        if charge is None:
            return None
        reserved = self._books.reserve(charge, datetime.now(UTC))
        if reserved.new:
            _log.info("reserved", extra={**names_of(invitation.plan), **said_of(reserved)})
            head = self._books[invitation.job.dataset].head
            self.witnessing.reserved(invitation.plan, reserved.block, head)
        return reserved

    def _store(
        self,
        offer: Envelope,
        plan: RoundPlan,
        half: SchemeHalf,
        update: EncodedUpdate,
        model: Digest,
        ledger: Ledger,
    ) -> Stored:
        try:
            self.outbox.put_parts(plan.context, half.seal(update, model))
        except BaseException:
            self.outbox.remove(plan.context)
            raise
        signed = half.manifest(ledger.head)
        contribution = Contribution(offer=offer, manifest=signed.manifest, seeds=signed.seeds)
        return self.outbox.complete(plan.context, contribution)

    @property
    def _secrets(self) -> Path:
        """What schemes keep of rounds that are not over: <ctx>/."""
        return self._settings.state_dir / "secrets"

    @property
    def scratch(self) -> Path:
        """Where a model lies while it is being received."""
        return self._settings.state_dir / "model.part"


def _give_way() -> None:
    """Lower this thread's priority (to Linux it is a process): rounds come first, foresight fills gaps."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)

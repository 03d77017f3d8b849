"""When a silo witnesses which log: the aggregator's in each round, all as a job begins and ends."""

from __future__ import annotations

import logging

from policies.findings import PolicyRefusal
from privacy.chain import Head
from privacy.errors import PeerFault, SealsumError
from privacy.ids import Context, Digest
from privacy.plan import RoundPlan
from privacy.wire.envelope import Verified
from privacy.wire.messages import RoundOffer
from silo_agent.delivery import Delivery
from silo_agent.participation import Site
from silo_agent.refusals import finding_of
from silo_agent.witness import Sighting, Witness

_log = logging.getLogger(__name__)


class Witnessing:
    """One agent's."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._visited: Digest | None = None
        self._charter: Digest | None = None

    def sight(self, offer: Verified[RoundOffer], site: Site, delivery: Delivery) -> Sighting:
        """Judge the logs before anything of a round is done.

        Raises:
            PolicyRefusal, SignatureRejected, MalformedMessage: as ``Witness.judge`` and ``visit``.
        """
        if self._charter != site.charter.digest:
            self._charter = site.charter.digest
            self.witness.log.record(
                "charter_in_force", {"charter": self._charter, "epoch": site.charter.epoch}
            )
        job = offer.message.plan.job_digest
        if self._visited != job:
            self._visit_servers(site, delivery)
            self._visited = job
        enough = max(policy.model.spec.witnesses_needed for policy in site.policies)
        log = offer.message.log
        return self.witness.judge(log, offer.sender, site.charter, enough, delivery.aggregator)

    def attest(self, sighting: Sighting, delivery: Delivery, *, durably: bool) -> None:
        """Cosign what was sighted; ``durably`` unless the round's BEGIN is on disk and names it."""
        self.witness.attest(sighting, delivery.aggregator, durably=durably)

    def reserved(self, plan: RoundPlan, block: tuple[int, int], head: Head) -> None:
        """Write down that a block of rounds was charged, and where the ledger says so."""
        self.witness.log.record(
            "reserved",
            {
                "job": plan.job,
                "job_digest": plan.job_digest,
                "first_round": block[0],
                "last_round": block[1],
                "ledger_head": head.model_dump(mode="json"),
            },
        )

    def refused(self, context: Context, error: SealsumError) -> None:
        """Write down, here and in the silo's own log, that it takes no part in a round, and by which rule."""
        rule = finding_of(error).rule
        _log.warning("refused", extra={"context": context, "rule": rule, "reason": str(error)})
        self.witness.log.record("round_refused", {"context": context, "rule": rule})

    def conclude(self, plan: RoundPlan, site: Site, delivery: Delivery) -> None:
        """The job is over: every server's log is witnessed as it ends."""
        self._visited = None
        aggregator = site.charter.with_role("aggregator")[0].id
        try:
            self.witness.visit(aggregator, site.charter, delivery.aggregator)
            self._visit_servers(site, delivery)
        except (PolicyRefusal, PeerFault) as error:  # in our log; offers of the next job will be refused
            extra = {"job": plan.job, "context": plan.context, "reason": str(error)}
            _log.warning("log_not_witnessed", extra=extra)

    def _visit_servers(self, site: Site, delivery: Delivery) -> None:
        for server, client in delivery.share_servers.items():
            self.witness.visit(server, site.charter, client)

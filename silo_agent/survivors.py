"""Whom a silo helps to open a sum with: judged by each of its threat models, where no share server judges it.

With one server, that server alone names the survivors. A silo that believed its count could be left as the
only institution in a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.findings import PolicyRefusal
from policies.rules_round import survivor_findings
from privacy.ids import Digest, ServerId, SiloId
from privacy.wire.messages import SurvivorSet
from silo_agent.schemes.half import Seat

_FEDERATIONS_ONLY = "release_policy"
"""Whether a threat model is the one that the plan names: the silo's own is not meant to be."""


def judge_survivors(seat: Seat, survivors: Sequence[SiloId], manifests: Sequence[Digest]) -> None:
    """What a share server asks before it signs a set, asked here under the federation's threat model and the
    silo's own: invited silos, enough of them, of enough institutions, with few enough dropouts.

    Raises:
        PolicyRefusal: with all findings. As at share servers, mode ``audit`` changes nothing for the
            federation's; the silo's own tolerates in that mode what it has tolerated in the plan.
    """
    named = SurvivorSet(
        server=ServerId(seat.aggregator), survivors=tuple(survivors), manifests=tuple(manifests)
    )
    federations, *own = seat.policies
    findings = list(survivor_findings(federations, seat.plan, seat.charter, named))
    for policy in own:
        if policy.model.spec.mode == "audit":
            continue
        findings += (
            finding
            for finding in survivor_findings(policy, seat.plan, seat.charter, named)
            if finding.rule != _FEDERATIONS_ONLY
        )
    if findings:
        raise PolicyRefusal(f"survivors of round {seat.plan.round}", findings)

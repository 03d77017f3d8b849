"""Was the cohort drawn as the signed phase says, and not chosen? Drawn again here, from the plan alone.

Whoever chooses a cohort chooses whose sum she sees. Where a job asks for a part of the silos, which ones
follows from the job's digest, the round and the silos that were here (``policies.invited``). Who was here is
the aggregator's word: it may call a silo absent, as in rounds that ask for all, but it may not pick.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.invited import Drawn, invited
from policies.loader import LoadedPolicy
from policies.planning import silos_needed
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter


def cohort_is_drawn(
    policy: LoadedPolicy, plan: RoundPlan, job: JobSpec, charter: Charter
) -> Iterator[Finding]:
    """The cohort is what the draw gives. How many it takes at least, the federation's threat model says: a
    silo's own does not draw."""
    if policy.digest != plan.policy:
        return
    phase = job.training.phase(plan.round)
    if phase is None or not phase.draws:
        if plan.pool:
            yield _finding("no pool, because the round asks for every silo that is here", _names(plan.pool))
        return
    enrolled = {member.id: member.legal_entity for member in charter.with_role("silo")}
    strangers = [silo for silo in plan.pool if silo not in enrolled]
    if strangers or not plan.pool:
        yield _finding("a pool of enrolled silos", _names(strangers) if strangers else "none")
        return
    entities = {silo: enrolled[silo] for silo in plan.pool}
    drawn = sorted(invited(Drawn(job.digest, phase, plan.round), entities, silos_needed(job, policy)))
    if drawn != list(plan.silos):
        yield _finding(_names(drawn), _names(plan.silos))


def _names(silos: object) -> str:
    return ", ".join(map(str, silos)) if isinstance(silos, tuple | list) else str(silos)


def _finding(expected: str, got: str) -> Finding:
    return Finding(
        "cohort_not_drawn",
        "the cohort was not drawn as the job says: whoever picks silos chooses whose sum she sees",
        expected,
        got,
        "the aggregator invites what the draw over job, round and present silos gives",
    )

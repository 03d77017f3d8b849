"""Does a round publish numbers from which a model can be made that the threat model does not give out yet?"""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.institutions import same_institution
from policies.schema import Spec
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.vector_terms import CONTROL


def mean_updates_stay_with_models(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Further vectors open in the signed result, which researchers read. Whoever has every mean update takes
    the server's steps herself, from the job's first model to the last."""
    if not any(vector.name == CONTROL for vector in plan.further):
        return
    release, asked = spec.release.model, spec.require.attack_suite
    owners = [silo.legal_entity for silo in charter.with_role("silo")]
    strangers = [
        one.id
        for one in charter.with_role("researcher")
        if not any(same_institution(one.legal_entity, owner) for owner in owners)
    ]
    kept = [
        *(["release.model.when: job_end"] if release.when == "job_end" else []),
        *(["release.model.to: silos"] if release.to == "silos" and strangers else []),
        *([f"require.attack_suite: {asked}"] if asked != "none" else []),
    ]
    if kept:
        yield Finding(
            "mean_updates_published",
            "each round would publish the mean update, from which researchers can make models that they may "
            "not have yet",
            "local.control_sums: 1, or models that go to every researcher after each round, attacked or not",
            f"control_sums: 2 with {', '.join(kept)}",
            "sign the job with control_sums: 1 and plain server steps",
        )

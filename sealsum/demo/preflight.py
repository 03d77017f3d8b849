"""Would the policy refuse this job? Asked of the policy's own rules before any process is started.

The gates of silos and servers ask again when the job is there; this spares the user the wait.
"""

from __future__ import annotations

from aggregator.enrolment.chartering import roster_findings
from policies.findings import PolicyRefusal
from policies.loader import LoadedPolicy
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId
from privacy.roster import SEALED_TO, Charter, Member
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES, assert_available
from sealsum.demo.cast import FEDERATION, cast_of
from sealsum.demo.job import DemoTerms
from sealsum.job_judgement import job_findings


def refuse_if_policy_does(policy: LoadedPolicy, terms: DemoTerms) -> None:
    """Judge the first round of the demo's job as it will be planned, all hospitals invited.

    Raises:
        PolicyRefusal: with every finding; nothing has been started.
        ConfigurationError: the scheme needs a library that is not installed.
    """
    if terms.scheme in ONE_KEY_SCHEMES:
        assert_available()
    charter = _trial_charter(policy, terms.scheme)
    findings = list(roster_findings(policy.model, charter.members))
    findings += job_findings(policy, terms.job(FEDERATION, charter.digest), charter)
    if findings and policy.model.spec.mode == "enforce":
        raise PolicyRefusal(f"policy {policy.model.metadata.name}, judged before anything ran", findings)


def _trial_charter(policy: LoadedPolicy, scheme: str) -> Charter:
    """The demo's roster with keys that are thrown away: rules look at roles and institutions."""
    members = [
        Member(
            id=PartyId(part.name),
            role=part.role,
            legal_entity=part.legal_entity,
            operator=part.operator,
            verify_key=SigningKey.generate().verify_key,
            sealing_key="00" if part.role in SEALED_TO else "",
            url="https://127.0.0.1" if part.serves else "",
        )
        for part in cast_of(scheme)
    ]
    return Charter(
        federation=FEDERATION,
        epoch=1,
        officers=Digest("0" * 64),
        members=tuple(sorted(members, key=lambda member: member.id)),
        policy=policy.digest,
        policy_text=policy.text,
        policy_parents=policy.parents,
    )

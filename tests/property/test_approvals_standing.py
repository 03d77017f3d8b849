"""Whatever is decided by whom in which order, a job stands where a plain reading of the rules puts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from privacy.approval import ApprovalTerms, JobApproval
from privacy.ids import Digest
from privacy.people import Person, PersonRole
from privacy.roster import Member
from silo_agent.approvals.decisions import Decision
from silo_agent.approvals.standing import (
    MAY_REJECT,
    Bench,
    Request,
    Requirement,
    standing_of,
)

NOW, PAST, LATER = "2026-11-30T12:00:00Z", "2026-11-30T11:59:59Z", "2026-12-30T12:00:00Z"
PEOPLE: dict[str, Person] = {
    "ada": Person(roles=("dpo",), verify_key="a" * 64),
    "ben": Person(roles=("data_steward", "security"), verify_key="b" * 64),
    "cleo": Person(roles=("dpo", "data_steward"), verify_key="c" * 64),
    "rhea": Person(roles=("dpo", "security"), verify_key="d" * 64),  # whose key signed the job
}
RESEARCHER = Member(
    id="researcher", role="researcher", legal_entity="University", operator="University", verify_key="d" * 64
)  # type: ignore[arg-type]  # a literal id
SILO = RESEARCHER.model_copy(update={"id": "silo-1", "legal_entity": "Hospital", "verify_key": "e" * 64})
TERMS = ApprovalTerms(
    federation="testfed",
    silo="silo-1",
    job="heart",
    job_digest="1" * 64,
    algorithm="dp_fedavg",
    architecture="2" * 64,
    dataset="cardio",
    registration="3" * 64,
    data_schema="4" * 64,
    recipient="silos",
    noise_multiplier=4.0,
    epsilon_job=1.5,
    delta=1e-5,
    rounds_max=2,
)


@dataclass(frozen=True)
class Said:
    """One decision as it is drawn."""

    who: str
    role: PersonRole
    approves: bool
    expired: bool
    other_terms: bool


SAID = st.builds(
    Said,
    st.sampled_from([*PEOPLE, "stranger"]),
    st.sampled_from(["dpo", "data_steward", "security", "auditor"]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
)


def plainly(said: Sequence[Said], n: int, roles: Sequence[PersonRole]) -> str:
    """The rules once more, by people instead of by decisions."""
    last = {one.who: one for one in said}
    roles_that_approve = set()
    for who, one in last.items():
        if who not in PEOPLE or one.role not in PEOPLE[who].roles:
            continue
        if not one.approves:
            if one.role in MAY_REJECT:
                return "rejected"
        elif one.role in roles and who != "rhea" and not one.expired and not one.other_terms:
            roles_that_approve.add(one.role)
    return "approved" if len(roles_that_approve) >= n else "waiting"


@given(
    st.lists(SAID, max_size=8),
    st.sampled_from([(1, ("dpo",)), (1, ("dpo", "data_steward")), (2, ("dpo", "data_steward", "security"))]),
)
def test_a_job_stands_where_a_plain_reading_says(
    said: list[Said], asked: tuple[int, tuple[PersonRole, ...]]
) -> None:
    n, roles = asked
    decisions = [
        Decision(
            f"{number:04d}.json",
            JobApproval(
                **{**dict(TERMS), "rounds_max": 1 if one.other_terms else 2},
                decision="approve" if one.approves else "reject",
                by=one.who,
                role=one.role,
                at=PAST,
                expires_at=PAST if one.expired else LATER,
            ),
            PEOPLE[one.who].verify_key if one.who in PEOPLE else "f" * 64,
            Digest(f"{number:064x}"),
        )
        for number, one in enumerate(said)
    ]
    bench = Bench(SILO, PEOPLE, {}, Requirement(n, roles, automatic=False))
    standing = standing_of(bench, Request(TERMS, "test", RESEARCHER, TERMS.epsilon_job), decisions, NOW)
    assert standing.state == plainly(said, n, roles)
    if standing.state == "approved":
        assert len({one.by for one in standing.counted}) == len({one.role for one in standing.counted}) >= n

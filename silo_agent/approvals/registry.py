"""What a person at the silo sees: jobs by name, each with its case and standing; and where she decides.

Works beside a running agent: takes no lock, reads what the agent has verified, and verifies it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from policies.findings import Finding, PolicyRefusal
from privacy.approval import ApprovalTerms, JobApproval, instant, sign_approval
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import Digest
from privacy.keystore import Identity
from privacy.people import Person, PersonRole
from silo_agent.approvals.case import Case, Office, assert_would_run, case_of, open_office
from silo_agent.approvals.decisions import Decisions
from silo_agent.approvals.recording import logged_decisions, record_decision
from silo_agent.approvals.standing import MAY_REJECT, Standing, conflict_of, standing_of
from silo_agent.approvals.stored_jobs import StoredJobs
from silo_agent.charter_pin import CharterPin
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import SiloSettings


@dataclass(frozen=True)
class Listed:
    """A job as the list shows it."""

    case: Case
    standing: Standing
    ended: bool

    @property
    def state(self) -> str:
        """In one word: what a person would ask first."""
        if self.ended:
            return "ended"
        return "would be refused" if self.case.findings else self.standing.state


@dataclass(frozen=True)
class Decided:
    """A decision that was stored."""

    approval: JobApproval
    file: str
    standing: Standing
    """Where the job stands with it."""


class Registry:
    """The jobs of one silo, as its people see them."""

    def __init__(self, settings: SiloSettings, identity: Identity) -> None:
        """Read the charter in force.

        Raises:
            ConfigurationError: the agent has never run, so that there is none.
        """
        pin = CharterPin(settings.state_dir / "charter.json", identity.pin)
        self._office: Office = open_office(settings, identity, pin.charter, load_own_policy(settings))
        self._jobs = StoredJobs(settings.state_dir)
        self._decisions = Decisions(settings.state_dir, logged_decisions(settings.state_dir, identity))

    @property
    def decisions(self) -> Decisions:
        """What was decided so far."""
        return self._decisions

    @property
    def office(self) -> Office:
        """What jobs are judged by."""
        return self._office

    def all(self, now: datetime, ended: bool) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
        """Jobs that are open, or all; and what could not be read, by file.

        Raises:
            LedgerDamaged: a ledger does not verify.
        """
        listed, unread = [], []
        for digest in self._digests() if ended else self._jobs.open_digests():
            try:
                listed.append(self._listed(digest, now))
            except (ConfigurationError, PolicyRefusal) as error:
                unread.append(str(error))
        return tuple(listed), tuple(unread)

    def one(self, asked: str, now: datetime) -> Listed:
        """The job of that name, digest or beginning of a digest.

        Raises:
            ConfigurationError: none, or several; or it does not read back as it was signed.
            PolicyRefusal: a stored decision about it is not as it was signed.
        """
        return self._listed(self._find(asked), now)

    def decide(
        self,
        listed: Listed,
        decision: Literal["approve", "reject"],
        name: str,
        key: SigningKey,
        now: datetime,
        days: int,
        reason: str = "",
        role: PersonRole | None = None,
    ) -> Decided:
        """Sign and store a person's decision. Checks, in this order:

        (1) she is registered, and this is her key; (2) she has a role that may decide so; (3) to approve: she
        did not ask for the job herself, and it would run.

        Raises:
            PolicyRefusal: the first of these that does not hold.
        """
        bench, case = self._office.bench, listed.case
        # (1)
        person = bench.people.get(name)
        if person is None:
            known = ", ".join(sorted(bench.people)) or "nobody"
            raise _refused(
                "approval.person",
                "whoever decides must be registered in silo.yaml under people",
                known,
                name,
                "register her, with the key that 'sealsum keys new' made for her",
            )
        if key.verify_key != person.verify_key:
            raise _refused(
                "approval.key",
                f"the key is not the one that is registered for {name}",
                person.verify_key,
                key.verify_key,
                f"sign with her own key, or register it as people.{name}.verify_key",
            )
        # (2)
        may = MAY_REJECT if decision == "reject" else bench.requirement.roles
        chosen = _role(name, person, may, role)
        # (3)
        if decision == "approve":
            conflict = conflict_of(bench, case.request, name, person)
            if conflict:
                raise _refused(
                    "approval.requester",
                    f"{name} {conflict}",
                    "somebody who did not ask for the job",
                    name,
                    "have somebody else decide",
                )
            assert_would_run(case)
        approval = JobApproval(
            **{field: getattr(case.request.terms, field) for field in ApprovalTerms.model_fields},
            decision=decision,
            by=name,
            role=chosen,
            at=instant(now),
            expires_at=instant(now + timedelta(days=days)),
            reason=reason,
        )
        state_dir, identity = self._office.settings.state_dir, self._office.identity
        signed = sign_approval(approval, key)
        file = record_decision(self._decisions, state_dir, identity, approval, signed)
        return Decided(approval, file, self._standing(case, now))

    def _listed(self, digest: Digest, now: datetime) -> Listed:
        case = case_of(self._office, self._jobs.read(digest, self._office.charter), now)
        return Listed(case, self._standing(case, now), digest in self._jobs.ended_digests())

    def _standing(self, case: Case, now: datetime) -> Standing:
        decisions = self._decisions.about(case.digest)
        return standing_of(self._office.bench, case.request, decisions, instant(now))

    def _digests(self) -> tuple[Digest, ...]:
        return (*self._jobs.open_digests(), *self._jobs.ended_digests())

    def _find(self, asked: str) -> Digest:
        names: dict[Digest, str] = {}
        for digest in self._digests():
            try:
                names[digest] = self._jobs.read(digest, self._office.charter).message.job
            except ConfigurationError:
                continue  # of an earlier charter, or altered: found by its digest only, and then told
        found = [digest for digest, name in names.items() if name == asked]
        if not found and len(asked) >= _PREFIX:
            found = [digest for digest in self._digests() if digest.startswith(asked)]
        if len(found) != 1:
            known = ", ".join(sorted(set(names.values()))) or "none"
            what = "several of that name; give its digest" if found else f"none; jobs here: {known}"
            raise ConfigurationError(
                f"JOB: expected a job's name, or 8 digits of its digest, got {asked!r}: {what}"
            )
        return found[0]


_PREFIX = 8


def _role(name: str, person: Person, may: tuple[PersonRole, ...], asked: PersonRole | None) -> PersonRole:
    wanted = may if asked is None else tuple(role for role in may if role == asked)
    chosen = next((role for role in wanted if role in person.roles), None)
    if chosen is None:
        has = ", ".join(person.roles)
        raise _refused(
            "approval.role",
            f"{name} has no role that may decide this{'' if asked is None else f' (--role {asked})'}",
            " or ".join(may),
            has,
            "have somebody with that role decide; the threat models name the roles under require.approvals",
        )
    return chosen


def _refused(rule: str, sentence: str, expected: str, got: str, remedy: str) -> PolicyRefusal:
    return PolicyRefusal("decision", [Finding(rule, sentence, expected, got, remedy)])

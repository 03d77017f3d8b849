"""A silo with people of its own, on disk, and jobs before it: what tests of approvals start from."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from privacy.approval import JobApproval, instant
from privacy.canonical import canonical_bytes
from privacy.identity import SigningKey
from privacy.keystore import load_identity, write_secret
from privacy.people import PersonRole
from privacy.plan import JobSpec
from privacy.wire.envelope import Verified
from privacy.wire.job_envelope import open_job
from silo_agent.approvals.decisions import Decisions
from silo_agent.approvals.desk import ApprovalDesk
from silo_agent.approvals.registry import Decided, Registry
from silo_agent.approvals.stored_jobs import StoredJobs
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import SiloSettings, read_settings
from tests.federation import Federation, demo_policy_text
from tests.silo_yaml import registered

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PEOPLE: dict[str, list[PersonRole]] = {
    "ada": ["dpo"],
    "ben": ["data_steward"],
    "cleo": ["security", "auditor"],
    "dora": ["dpo", "data_steward"],
    "eve": ["researcher", "data_steward"],
}


def policy_asking(n: int = 1, roles: str = "[data_steward, dpo]", automatic: str = "refused") -> str:
    """The demo's threat model with other words about approvals."""
    shipped = "approvals: {n: 1, roles: [data_steward, dpo], automatic: allowed}"
    text = demo_policy_text()
    assert shipped in text
    return text.replace(shipped, f"approvals: {{n: {n}, roles: {roles}, automatic: {automatic}}}")


class ApprovingSilo:
    """``silo-1`` of a federation, its people's keys, and its state directory."""

    def __init__(self, root: Path, policy: str | None = None, silo: str = "silo-1", **settings: Any) -> None:
        self.root = root
        text = policy_asking() if policy is None else policy
        self.federation = Federation(policy_text=text)
        self.silo = silo
        root.mkdir(parents=True, exist_ok=True)
        self.federation.identity(silo, root / "state")
        (root / "cardio.csv").write_text("patient,age,pressure,num\n")
        (root / "own.yaml").write_text(text)
        self.keys = {name: SigningKey.generate() for name in PEOPLE}
        self.files = {name: root / f"{name}.pem" for name in PEOPLE}
        for name, key in self.keys.items():
            write_secret(self.files[name], key.to_pem())
        self.config = root / "silo.yaml"
        self.write(**settings)

    def write(self, **settings: Any) -> None:
        """Write ``silo.yaml``."""
        document = {
            "state_dir": "state",
            "aggregator_url": "https://aggregator.test",
            "threat_model": "./own.yaml",
            "datasets": {"cardio": registered()},
            "people": {
                name: {"roles": roles, "verify_key": self.keys[name].verify_key}
                for name, roles in PEOPLE.items()
            },
            **settings,
        }
        self.config.write_text(json.dumps(document))

    @property
    def settings(self) -> SiloSettings:
        return read_settings(self.config)

    @property
    def state(self) -> Path:
        return self.root / "state"

    def show(self, **changes: Any) -> JobSpec:
        """A job that the silo was shown."""
        spec = self.federation.job_spec(**changes)
        StoredJobs(self.state).keep(self.signed(spec))
        return spec

    def registry(self) -> Registry:
        """As a person's command opens it."""
        return Registry(self.settings, load_identity(self.state))

    def desk(self) -> ApprovalDesk:
        """As the agent opens it after a start."""
        settings = self.settings
        desk = ApprovalDesk(settings, load_identity(self.state), load_own_policy(settings))
        desk.meet(self.federation.charter)
        return desk

    def decide(
        self, name: str, job: str = "heart", decision: str = "approve", now: datetime = NOW, **changes: Any
    ) -> Decided:
        """A person decides, with her own key unless told otherwise."""
        registry = self.registry()
        key = changes.pop("key", None) or self.keys[name]
        given = {"key": key, "now": now, "days": 30, **changes}
        return registry.decide(registry.one(job, now), decision, name, **given)  # type: ignore[arg-type]

    def unsigned(self, name: str, job: str = "heart", **changes: Any) -> JobApproval:
        """What ``name`` would sign to approve a job; nothing is stored."""
        terms = self.registry().one(job, NOW).case.request.terms
        said = {
            "decision": "approve",
            "by": name,
            "role": PEOPLE[name][0],
            "at": instant(NOW),
            "expires_at": instant(NOW + timedelta(days=30)),
        }
        return JobApproval(**{**dict(terms), **said, **changes})

    def train(self, spec: JobSpec, now: datetime = NOW + timedelta(minutes=1)) -> None:
        """What the agent asks before each round; raises if the round may not begin."""
        self.desk().assert_approved(self.signed(spec), now)

    def signed(self, spec: JobSpec) -> Verified[JobSpec]:
        """The job as its researcher signed it."""
        return open_job(self.federation.sign_job(spec), self.federation.charter)

    def file(self, spec: JobSpec, number: int = 1) -> Path:
        """Where a decision lies."""
        return self.state / "approvals" / spec.digest / f"{number:04d}.json"

    def forge(self, spec: JobSpec, signed: Any) -> str:
        """Put a decision on the disk without asking anybody."""
        return Decisions(self.state, {}).add(spec.digest, signed)


def edited(raw: bytes, **changes: Any) -> bytes:
    """A stored decision whose body says something else."""
    signed = json.loads(raw)
    body = {**json.loads(signed["body"]), **changes}
    return canonical_bytes({**signed, "body": canonical_bytes(body).decode()})

"""What a pack's files say, read for a report: nothing is checked here, that is the verifier's part.

Reads the files by name, so that a report can be written of any pack, also of one that somebody else made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Member:
    """A party of the federation."""

    id: str
    role: str
    legal_entity: str
    operator: str


@dataclass(frozen=True)
class RefusalFact:
    """Who said no to a round, and why."""

    silo: str
    rule: str
    sentence: str
    expected: str
    got: str
    remedy: str


@dataclass(frozen=True)
class RoundFact:
    """One round as its messages tell it."""

    number: int
    outcome: str
    reason: str
    openings: int
    invited: tuple[str, ...]
    sent: tuple[str, ...]
    survivors: tuple[str, ...]
    signers: tuple[str, ...]
    """Who signed that set, servers first."""
    refusals: tuple[RefusalFact, ...]
    model_out: str | None


@dataclass(frozen=True)
class ApprovalFact:
    """What somebody at a silo decided on the job; ``by`` is empty where the name is withheld."""

    silo: str
    by: str
    role: str
    decision: str
    at: str
    expires_at: str
    reason: str


@dataclass(frozen=True)
class OwnPolicy:
    """Another threat model than the federation's: a silo's own, as it handed it over."""

    silo: str
    text: str
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Everything that a report says comes from here."""

    federation: str
    epoch: int
    members: tuple[Member, ...]
    policy_text: str
    policy_parents: tuple[str, ...]
    policy_digest: str
    previous: OwnPolicy | None
    """Of the charter before this one; ``silo`` is empty."""
    job: Json
    job_sender: str
    claim: Json
    replay: Json
    card: Json
    rounds: tuple[RoundFact, ...]
    approvals: tuple[ApprovalFact, ...]
    own_policies: tuple[OwnPolicy, ...]
    attacks: tuple[Json, ...]
    """Rows of the attack results, if some are included."""
    versions: Json
    components: int
    """Listed in the software bill of materials."""
    redactions: tuple[Json, ...]
    files: tuple[str, ...]


def facts_of(files: Mapping[str, bytes]) -> Facts:
    """Read a pack's files; whatever is missing or of another form raises where it is met."""
    charter = _body(_json(files, "who/charter.json"))
    request = _json(files, "job/job.json")
    attacks = files.get("tests/attack.json")
    return Facts(
        federation=charter["federation"],
        epoch=charter["epoch"],
        members=tuple(
            Member(m["id"], m["role"], m["legal_entity"], m["operator"]) for m in charter["members"]
        ),
        policy_text=files["policy/policy.yaml"].decode(),
        policy_parents=tuple(charter["policy_parents"]),
        policy_digest=charter["policy"],
        previous=_previous(files),
        job=_body(request),
        job_sender=request["sender"],
        claim=_json(files, "dp/claim.json"),
        replay=_json(files, "dp/accountant-replay.json"),
        card=_json(files, "data/card.json"),
        rounds=tuple(_round(_json(files, name)) for name in sorted(files) if name.startswith("rounds/")),
        approvals=_approvals(files),
        own_policies=tuple(
            OwnPolicy(body["silo"], own["text"], tuple(own["parents"]))
            for body in (_json(files, name)["body"] for name in _handed(files))
            if (own := body.get("threat_model")) is not None  # earlier packs have none
        ),
        attacks=() if attacks is None else tuple(json.loads(attacks)["attacks"]),
        versions=_json(files, "software/versions.json"),
        components=len(_json(files, "software/sbom.cdx.json").get("components", [])),
        redactions=tuple(_json(files, "REDACTIONS.json")["redactions"]),
        files=tuple(sorted(files)),
    )


def _json(files: Mapping[str, bytes], name: str) -> Any:
    return json.loads(files[name])


def _body(signed: Json) -> Any:
    """The body of an envelope or an endorsed document: a canonical text."""
    return json.loads(signed["body"])


def _round(document: Json) -> RoundFact:
    plan, result = _body(document["offer"])["plan"], _body(document["result"])
    signers = [envelope["sender"] for envelope in document["survivors"]]
    signers += [silo for section in ("consistency", "opened") for silo in sorted(document[section])]
    refusals = (_body(envelope) for _, envelope in sorted(document["refusals"].items()))
    return RoundFact(
        number=plan["round"],
        outcome=result["outcome"],
        reason=result["reason"],
        openings=result["openings"],
        invited=tuple(member["silo"] for member in plan["cohort"]),
        sent=tuple(sorted(document["manifests"])),
        survivors=tuple(result["survivors"]),
        signers=tuple(signers) if result["openings"] else (),
        refusals=tuple(
            RefusalFact(r["silo"], r["rule"], r["sentence"], r["expected"], r["got"], r["remedy"])
            for r in refusals
        ),
        model_out=result["model_out"],
    )


def _previous(files: Mapping[str, bytes]) -> OwnPolicy | None:
    if "who/previous.json" not in files:
        return None
    charter = _body(_json(files, "who/previous.json"))
    return OwnPolicy("", charter["policy_text"], tuple(charter["policy_parents"]))


def _handed(files: Mapping[str, bytes]) -> list[str]:
    return sorted(file for file in files if file.startswith("silos/"))


def _approvals(files: Mapping[str, bytes]) -> tuple[ApprovalFact, ...]:
    found = []
    for name in _handed(files):
        silo = name.removeprefix("silos/").removesuffix(".json")
        for signed in _json(files, name)["body"]["approvals"]:
            body = json.loads(signed["body"]) if "body" in signed else {}
            texts = (
                str(body.get(field) or "")
                for field in ("by", "role", "decision", "at", "expires_at", "reason")
            )
            found.append(ApprovalFact(silo, *texts))
    return tuple(sorted(found, key=lambda one: (one.at, one.silo, one.by)))

"""Founding the demo's federation and enrolling every party over HTTPS, each in a process of its own.

The demo plays the registrar, who founds and invites, and the officers of three hospitals, of whom any two
endorse the charter. A party's key is made by that party's own ``enroll`` process in that party's directory;
the demo never reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aggregator.enrolment.authority import Authority, found_authority
from aggregator.enrolment.governing import Change, adopt_charter, propose_charter
from aggregator.enrolment.invitations import REGISTRAR, Guest, invite
from policies.loader import LoadedPolicy
from privacy.canonical import canonical_bytes
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.keystore import write_secret
from privacy.officers import Officer, Officers
from privacy.roster import Charter
from privacy.wire.proposal import assemble, endorse
from sealsum.demo.cast import FEDERATION, OFFICERS, OFFICERS_NEEDED, Part
from sealsum.demo.folder import DemoFolder
from sealsum.demo.parties import Programs
from sealsum.demo.supervise import Child, Supervisor

INVITATION_LIFE = timedelta(minutes=10)
READY_S = 60.0
ENROL_S = 120.0


@dataclass(frozen=True)
class Founded:
    """A federation whose charter is sealed."""

    charter: Charter
    officers: str
    """Digest of the officers' document: what an auditor pins."""
    charter_file: Path


def found_and_enrol(
    supervisor: Supervisor,
    folder: DemoFolder,
    policy: LoadedPolicy,
    cast: Sequence[Part],
    registrar_port: int,
    urls: Mapping[str, str],
    programs: Programs,
) -> Founded:
    """Found, invite, enrol all parties at once through the registrar, let officers endorse the charter.

    Raises:
        ChildFailed: the registrar or a party's enrolment failed. PolicyRefusal: the roster does not do.
    """
    keys = {name: _make_officer_key(folder, name) for name, _ in OFFICERS}
    officers = Officers(
        federation=FEDERATION,
        version=1,
        threshold=OFFICERS_NEEDED,
        officers=tuple(
            Officer(name=PartyId(name), legal_entity=entity, verify_key=keys[name].verify_key)
            for name, entity in sorted(OFFICERS)
        ),
    )
    authority = found_authority(folder.party(REGISTRAR), officers, policy, datetime.now(UTC))
    registrar_url = f"https://127.0.0.1:{registrar_port}"
    tokens = _invite_all(authority, folder, cast, registrar_url, urls)
    listen = ["--listen", f"127.0.0.1:{registrar_port}"]
    registrar = supervisor.start(
        "registrar", programs.server("federation", "serve", str(folder.party(REGISTRAR)), *listen)
    )
    supervisor.wait_for(registrar, "listening", READY_S)
    _finish_all(
        supervisor,
        [
            supervisor.start(
                f"enrol-{part.name}",
                programs.silo(
                    part.command,
                    "enroll",
                    "--token-file",
                    str(tokens[part.name]),
                    "--state",
                    str(folder.state(part.name)),
                ),
            )
            for part in cast
        ],
    )
    proposal = propose_charter(authority, Change())
    signed = [endorse(proposal, keys[name]) for name, _ in OFFICERS[:OFFICERS_NEEDED]]
    charter = adopt_charter(authority, assemble(proposal, signed)).charter
    supervisor.stop([registrar])
    return Founded(charter, officers.digest, authority.directory / "charter.json")


def _make_officer_key(folder: DemoFolder, name: str) -> SigningKey:
    """An officer's own key, in her own directory."""
    key = SigningKey.generate()
    folder.party(name).mkdir(mode=0o700)
    write_secret(folder.party(name) / "officer.key", key.to_pem())
    return key


def _invite_all(
    authority: Authority,
    folder: DemoFolder,
    cast: Sequence[Part],
    registrar_url: str,
    urls: Mapping[str, str],
) -> dict[str, Path]:
    """One token file a party, handed over through the harness folder as an officer would by courier."""
    tokens: dict[str, Path] = {}
    for part in cast:
        guest = Guest(part.name, part.role, part.legal_entity, part.operator, urls.get(part.name, ""))
        invitation = invite(authority, guest, registrar_url, datetime.now(UTC), INVITATION_LIFE, False)
        tokens[part.name] = folder.harness / f"token-{part.name}.json"
        write_secret(tokens[part.name], canonical_bytes(invitation))
        folder.party(part.name).mkdir(mode=0o700, exist_ok=True)
    return tokens


def _finish_all(supervisor: Supervisor, children: Sequence[Child]) -> None:
    for child in children:
        supervisor.finish(child, ENROL_S)

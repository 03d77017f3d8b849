"""Founding the demo's federation and enrolling every party over HTTPS, each in a process of its own.

The demo plays the officer: it founds, invites and seals. A party's key is made by that party's own
``enroll`` process in that party's directory; the demo never reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aggregator.enrolment.authority import Authority, found_authority
from aggregator.enrolment.chartering import seal_charter
from aggregator.enrolment.invitations import Guest, invite
from policies.loader import LoadedPolicy
from privacy.canonical import canonical_bytes
from privacy.keystore import write_secret
from privacy.roster import Charter
from sealsum.demo.cast import FEDERATION, Part
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
    officer_key: str
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
    """Found, invite, enrol all parties at once through the registrar, seal the charter, stop the registrar.

    Raises:
        ChildFailed: the registrar or a party's enrolment failed. PolicyRefusal: the roster does not do.
    """
    authority = found_authority(folder.party("officer"), FEDERATION, policy, datetime.now(UTC))
    registrar_url = f"https://127.0.0.1:{registrar_port}"
    tokens = _invite_all(authority, folder, cast, registrar_url, urls)
    listen = ["--listen", f"127.0.0.1:{registrar_port}"]
    registrar = supervisor.start(
        "registrar", programs.server("federation", "serve", str(folder.party("officer")), *listen)
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
    charter = seal_charter(authority, drop_pending=False)
    supervisor.stop([registrar])
    return Founded(charter, authority.card.officer_key, authority.directory / "charter.json")


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

"""The doctor's look at a server that was reached: does it know us, its time, what passes on the way."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from policies.loader import LoadedPolicy, load_threat_model
from privacy.errors import NotAllowed, PeerFault, SignatureRejected, TooLarge
from privacy.keystore import Identity
from privacy.roster import Charter
from privacy.wire.charter import open_charter, parse_charter
from silo_agent.charter_pin import CharterPin, ask_for_charter
from silo_agent.doctor.finding import REMOTE, Report
from silo_agent.egress import Egress
from silo_agent.health import OFFSET_S
from silo_agent.transport import FederationClient

_LITTLE_OFFSET_S: Final = 30.0
_NOBODYS: Final = "0" * 64
"""A round that no server knows: whatever is sent for it is refused by the server itself, and kept nowhere."""
SIZES: Final = (64 << 10, 1 << 20, 8 << 20)
"""Up to a part's: what a silo sends in rounds."""


def look_at_charter(
    client: FederationClient, identity: Identity, egress: Egress, own: LoadedPolicy | None, report: Report
) -> Charter | None:
    """The aggregator answers us, and shows a charter that holds and fits this silo."""
    where, expected = f"{client.base_url}/v1/charter", "the charter, to our certificate"
    try:
        endorsed = ask_for_charter(client)
    except SignatureRejected as error:
        told = "TLS is opened on the way, and our certificate is lost there: have this host exempted"
        report.fault("mtls", where, expected, str(error), told, REMOTE)
        return None
    except NotAllowed as error:
        told = "the charter in force has another key of this silo, or none: ask an officer; it may be revoked"
        report.fault("mtls", where, expected, str(error), told, REMOTE)
        return None
    except PeerFault as error:
        told = "see the other findings; if all are well, ask the server's operator for its log"
        report.fault("mtls", where, expected, str(error), told, REMOTE)
        return None
    report.ok("mtls", where, expected, "it answers")
    look_at_clock(egress, report)
    expected = "endorsed by the pinned officers, no older than the one held, with this silo in it"
    with report.judging("charter", where, expected):
        CharterPin(identity.directory / "charter.json", identity.pin)  # what is held must hold
        charter = open_charter(endorsed, identity.pin.officers, identity.pin.federation).charter
        held = _held_epoch(identity)
        if charter.epoch < held:
            raise SignatureRejected(
                f"charter: epoch {charter.epoch}, and epoch {held} is held here; the server was set back: "
                "tell the officers"
            )
        member = charter.member(identity.pin.party)
        if member.verify_key != identity.signing.verify_key:
            raise SignatureRejected(
                f"charter: another key for {identity.pin.party}; use the state directory of the newer "
                "enrolment, or ask an officer"
            )
        identity.recognised_in(charter)
        report.ok("charter", where, expected, f"epoch {charter.epoch}, {charter.digest[:16]}…")
        _policies_agree(charter, own, report)
        return charter
    return None


def look_at_clock(egress: Egress, report: Report) -> None:
    """This machine's clock beside the server's, by its Date header."""
    where, expected = "clock", f"the server's time within {OFFSET_S:.0f} s"
    last = egress.contact.last
    if last is None or last.clock_offset_s is None:
        report.skip("clock", where, "the server told no time")
        return
    got = f"{last.clock_offset_s:+.0f} s ahead of the server"
    if abs(last.clock_offset_s) > OFFSET_S:
        told = "set this machine's clock by NTP (timedatectl); certificates and approvals go by it"
        report.fault("clock", where, expected, got, told, 78)
    elif abs(last.clock_offset_s) > _LITTLE_OFFSET_S:
        report.warn("clock", where, expected, got, "set this machine's clock by NTP (timedatectl)")
    else:
        report.ok("clock", where, expected, got)


def look_at_payload(
    client: FederationClient, name: str, report: Report, sizes: Sequence[int] = SIZES
) -> None:
    """Send bodies as large as a round's parts, for a round nobody knows: the server itself must refuse."""
    check, where = f"payload:{name}", f"{client.base_url}, bodies up to {sizes[-1] >> 10} KiB"
    expected = "each is refused by the server itself"
    for size in sizes:
        try:
            client.put_bytes(f"/v1/rounds/{_NOBODYS}/parts/0", bytes(size))
        except TooLarge as error:
            if "request " not in str(error):  # ours carry a request id
                told = (
                    "raise the body limit on the way (nginx: client_max_body_size 16m), or pass TLS through"
                )
                report.fault(check, where, expected, f"{size >> 10} KiB: {error}", told, REMOTE)
                return
        except PeerFault as error:
            if "request " in str(error):
                continue
            told = "find what stands between and cuts large bodies, or have this host exempted"
            report.fault(check, where, expected, f"{size >> 10} KiB: {error}", told, REMOTE)
            return
    report.ok(check, where, expected, "none was cut on the way")


def look_at_idle(
    connection: socket.socket, host: str, name: str, seconds: float, identity: Identity, report: Report
) -> None:
    """Whether a connection that is silent as long as a poll waits is still there."""
    check, where = f"idle:{name}", f"{host}, a connection silent for {seconds:g} s"
    expected = "it lasts"
    told = "raise the idle timeout of firewall and proxy above 30 s for this host: polls wait 20 s"
    http = HTTPConnection(host)
    http.auto_open = 0  # a connection that was cut is the finding, not to be dialled anew
    try:
        http.sock = identity.client_context.wrap_socket(connection, server_hostname=host)
        _livez(http)
        time.sleep(seconds)
        _livez(http)
    except (OSError, HTTPException) as error:
        report.warn(check, where, expected, f"it was cut ({type(error).__name__})", told)
    else:
        report.ok(check, where, expected, "it lasts")
    finally:
        http.close()


def _livez(http: HTTPConnection) -> None:
    http.request("GET", "/livez")
    http.getresponse().read()


def _held_epoch(identity: Identity) -> int:
    path: Path = identity.directory / "charter.json"
    if not path.exists():
        return 0
    pin = identity.pin
    return open_charter(parse_charter(path.read_bytes()), pin.officers, pin.federation).charter.epoch


def _policies_agree(charter: Charter, own: LoadedPolicy | None, report: Report) -> None:
    """What the federation requires and what this silo requires go together."""
    where, expected = "the charter's threat model beside the silo's own", "one scheme of secure summation"
    if own is None:
        report.skip("policies", where, "the silo's own does not load")
        return
    theirs = load_threat_model(charter.policy_text, charter.policy_parents)
    schemes = [one.model.spec.require.secagg.scheme for one in (theirs, own)]
    if schemes[0] != schemes[1]:
        told = "name the scheme in this silo's threat_model too, or have the officers change the federation's"
        got = f"federation {schemes[0]}, silo {schemes[1]}: every round is refused"
        report.fault("policies", where, expected, got, told, 3)
    else:
        report.ok("policies", where, expected, f"both {schemes[0]}")

"""The federation that chaos strikes: the demo's processes, which can be killed, stalled, restarted."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from policies.loader import LoadedPolicy
from sealsum.chaos.cases import Strike
from sealsum.demo.cast import AGGREGATOR, SHARE_SERVERS, cast_of
from sealsum.demo.enrolling import found_and_enrol
from sealsum.demo.folder import DemoFolder
from sealsum.demo.parties import READY_S, Programs, hand_out_patients, start_agents, start_servers
from sealsum.demo.patients import HOSPITALS, patients_of
from sealsum.demo.ports import free_ports
from sealsum.demo.split import split_patients
from sealsum.demo.supervise import Child, Supervisor
from sealsum.demo.watchdog import signal_group

SILOS = tuple(hospital.silo for hospital in HOSPITALS)
PARTIES = (AGGREGATOR, *SHARE_SERVERS, *SILOS)


def role_of(party: str) -> str:
    """What kind of party it is, for people."""
    if party == AGGREGATOR:
        return "aggregator"
    return "share server" if party in SHARE_SERVERS else "silo"


@dataclass
class Running:
    """Four hospitals, two share servers and an aggregator, each a process of its own."""

    supervisor: Supervisor
    folder: DemoFolder
    programs: Programs
    url: str
    charter: str
    """Digest of the charter in force."""
    officers: str
    """Digest of the officers' document: what the verifier pins."""
    children: dict[str, Child] = field(default_factory=dict)

    def strike(self, strike: Strike) -> None:
        """Let one fault happen to its end: afterwards the party runs again.

        Raises:
            ChildFailed: it did not start again.
        """
        child = self.children[strike.party]
        if strike.kind == "stall":
            signal_group(child.process.pid, signal.SIGSTOP)
            time.sleep(strike.lasts_s)
            signal_group(child.process.pid, signal.SIGCONT)
            return
        self.supervisor.kill(child)
        time.sleep(strike.lasts_s)
        self._start(strike.party)

    def _start(self, party: str) -> None:
        said = self.folder.logs / f"{party}.log"
        said.rename(
            said.with_name(f"{party}.{time.monotonic_ns()}.log")
        )  # what says that it is up is said anew
        own = self.folder.party(party)
        if party in SILOS:
            command = self.programs.silo("silo", "run", "--config", str(own / "silo.yaml"))
        else:
            kind = "aggregator" if party == AGGREGATOR else "share-server"
            command = self.programs.server(kind, "serve", "--config", str(own / "server.yaml"))
        self.children[party] = self.supervisor.start(party, command)
        up = "serving" if party in SILOS else "listening"
        self.supervisor.wait_for(self.children[party], up, READY_S)


def start_federation(
    supervisor: Supervisor, folder: DemoFolder, policy: LoadedPolicy, programs: Programs, seed: int
) -> Running:
    """Found, enrol and start everybody, as the demo does.

    Raises:
        ChildFailed: a process failed; every child is ended with the supervisor.
    """
    hand_out_patients(
        folder, tuple(split_patients(hospital, patients_of(hospital), seed) for hospital in HOSPITALS)
    )
    registrar_port, *server_ports = free_ports(2 + len(SHARE_SERVERS))
    ports = dict(zip((AGGREGATOR, *SHARE_SERVERS), server_ports, strict=True))
    urls = {name: f"https://127.0.0.1:{port}" for name, port in ports.items()}
    founded = found_and_enrol(supervisor, folder, policy, cast_of("additive"), registrar_port, urls, programs)
    servers = start_servers(supervisor, folder, ports, founded.charter_file, programs)
    agents = start_agents(supervisor, folder, urls[AGGREGATOR], policy.text, programs)
    return Running(
        supervisor,
        folder,
        programs,
        urls[AGGREGATOR],
        founded.charter.digest,
        founded.officers,
        {child.name: child for child in (*servers, *agents)},
    )

"""Each party's own configuration, and its process: what an administrator of that party would do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sealsum.demo.cast import AGGREGATOR, RESEARCHER
from sealsum.demo.folder import DemoFolder
from sealsum.demo.job import DATASET, PURPOSE
from sealsum.demo.patients import HOSPITALS
from sealsum.demo.scoring import HospitalFiles
from sealsum.demo.split import Split
from sealsum.demo.supervise import Child, Supervisor

READY_S = 60.0
_REGISTERED: dict[str, Any] = {
    "adapter": "csv",
    "path": "patients.csv",
    "purpose": PURPOSE,
    "legal_basis": "none needed: records published for research, without names (Detrano et al. 1989)",
}
_DEMO_JOBS: dict[str, Any] = {
    "researchers": [RESEARCHER],
    "datasets": [DATASET],
    "purposes": [PURPOSE],
    "algorithms": ["fedavg", "dp_fedavg", "dp_fedsgd"],
}
"""The one rule by which each hospital approves the demo's job; real ones ask a person."""
BUDGET_SPENT = 4
"""Exit code of an agent that has nothing left to spend: the others go on without it."""


@dataclass(frozen=True)
class Programs:
    """With which Python each kind of party runs ``sealsum``."""

    servers: str
    """May be an environment without any learning framework."""
    silos: str = sys.executable
    openfhe: Path | None = None
    """What every party of a joint key runs OpenFHE with."""

    @property
    def threshold_he(self) -> dict[str, Any]:
        """The setting, where there is one to make."""
        return {} if self.openfhe is None else {"threshold_he": {"python": str(self.openfhe)}}

    def server(self, *arguments: str) -> list[str]:
        """Command line of a server."""
        return [self.servers, "-m", "sealsum", *arguments]

    def silo(self, *arguments: str) -> list[str]:
        """Command line of a silo, or of the researcher."""
        return [self.silos, "-m", "sealsum", *arguments]


def hand_out_patients(folder: DemoFolder, splits: tuple[Split, ...]) -> dict[str, HospitalFiles]:
    """Give each hospital its training rows in its own directory; held-out rows go to the harness alone."""
    files: dict[str, HospitalFiles] = {}
    for split in splits:
        silo = split.hospital.silo
        hospital = HospitalFiles(
            training=folder.party(silo) / "patients.csv",
            held_out=folder.harness / f"held-out-{silo}.csv",
        )
        folder.party(silo).mkdir(mode=0o700, exist_ok=True)
        hospital.training.write_bytes(split.training.csv_bytes())
        hospital.held_out.write_bytes(split.held_out.csv_bytes())
        files[silo] = hospital
    return files


def start_servers(
    supervisor: Supervisor,
    folder: DemoFolder,
    ports: Mapping[str, int],
    charter_file: Path,
    programs: Programs,
) -> list[Child]:
    """Configure and start the aggregator and the share servers, if any, and wait until each listens.

    Raises:
        ChildFailed: one does not.
    """
    children: list[Child] = []
    for name, port in ports.items():
        command = "aggregator" if name == AGGREGATOR else "share-server"
        config = _write_config(
            folder.party(name) / "server.yaml",
            {
                "state_dir": "state",
                "listen": f"127.0.0.1:{port}",
                "charter": str(charter_file),
                **(programs.threshold_he if name == AGGREGATOR else {}),
            },
        )
        children.append(supervisor.start(name, programs.server(command, "serve", "--config", str(config))))
    for child in children:
        supervisor.wait_for(child, "listening", READY_S)
    return children


def start_agents(
    supervisor: Supervisor, folder: DemoFolder, aggregator_url: str, policy_text: str, programs: Programs
) -> list[Child]:
    """Configure and start the four agents; each hospital holds its own copy of the threat model."""
    children: list[Child] = []
    for hospital in HOSPITALS:
        own = folder.party(hospital.silo)
        (own / "threat-model.yaml").write_text(policy_text, encoding="utf-8")
        config = _write_config(
            own / "silo.yaml",
            {
                "state_dir": "state",
                "aggregator_url": aggregator_url,
                "threat_model": "threat-model.yaml",
                # One machine plays all silos on public data: a second Python for each would only take memory.
                "worker": {"process": False},
                "datasets": {DATASET: _REGISTERED},
                "approval_rules": {"demo": _DEMO_JOBS},
                **programs.threshold_he,
            },
        )
        children.append(
            supervisor.start(
                hospital.silo,
                programs.silo("silo", "run", "--config", str(config)),
                may_end_with=(BUDGET_SPENT,),
            )
        )
    return children


def _write_config(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path

"""Who plays in the demo: four hospitals, an aggregator, two share servers of two operators, a researcher."""

from __future__ import annotations

from dataclasses import dataclass

from privacy.roster import Role
from sealsum.demo.patients import HOSPITALS

FEDERATION = "heart-demo"
AGGREGATOR = "aggregator"
SHARE_SERVERS = ("share-server-a", "share-server-b")
RESEARCHER = "researcher"


@dataclass(frozen=True)
class Part:
    """One party as the officer invites it."""

    name: str
    role: Role
    legal_entity: str
    operator: str

    @property
    def serves(self) -> bool:
        """Whether others dial it."""
        return self.role in ("aggregator", "share_server")

    @property
    def command(self) -> str:
        """The ``sealsum`` subcommand this role works with."""
        return {
            "silo": "silo",
            "aggregator": "aggregator",
            "share_server": "share-server",
            "researcher": "job",
        }[self.role]


CAST: tuple[Part, ...] = (
    Part(AGGREGATOR, "aggregator", "Coordinating office (demo)", "Coordinating office (demo)"),
    Part(SHARE_SERVERS[0], "share_server", "University computing centre (demo)", "University IT (demo)"),
    Part(SHARE_SERVERS[1], "share_server", "National registry (demo)", "Registry IT (demo)"),
    *(
        Part(hospital.silo, "silo", f"Hospital of {hospital.title} (demo)", f"{hospital.title} IT (demo)")
        for hospital in HOSPITALS
    ),
    Part(RESEARCHER, "researcher", "University (demo)", "University (demo)"),
)

"""Who plays in the demo: hospitals, an aggregator, a researcher; share servers where the scheme has any."""

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
    """One party as the registrar invites it."""

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
"""Everybody who plays with ``additive``."""


OFFICERS: tuple[tuple[str, str], ...] = tuple(
    (f"officer-{hospital.silo}", f"Hospital of {hospital.title} (demo)") for hospital in HOSPITALS[:3]
)
"""Name and institution of those who endorse the charter: any two of the three."""
OFFICERS_NEEDED = 2


def cast_of(scheme: str) -> tuple[Part, ...]:
    """Who plays with a scheme: without share servers the aggregator is the one server."""
    return CAST if scheme == "additive" else tuple(part for part in CAST if part.role != "share_server")


def share_servers_of(scheme: str) -> tuple[str, ...]:
    """The share servers of a scheme."""
    return tuple(part.name for part in cast_of(scheme) if part.role == "share_server")


def counted_parties(scheme: str) -> str:
    """Who plays, counted, for people."""
    shared = len(share_servers_of(scheme))
    servers = f", {shared} share servers" if shared else " (the one server)"
    return f"{len(HOSPITALS)} hospitals, 1 aggregator{servers}, 1 researcher"

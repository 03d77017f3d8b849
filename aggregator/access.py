"""Who may call what: one literal table of endpoints and roles. Knows no HTTP and no person.

A route without a row does not start, a row without a route neither (``web_guard``), and whoever has no cell
in the row is refused: the default is no. Members of the charter are machines and come with their client
certificate, always; people may come with a bearer token instead, to the rows that name people's roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from privacy.people import PERSON_ROLES, PersonRole
from privacy.roster import Role

Method = Literal["GET", "PUT", "POST", "DELETE"]
Scope = Literal["charter", "jobs", "evidence", "logs", "models", "operators", "policy", "tokens", "upkeep"]
"""What an API token is given of its role; an endpoint is in at most one."""
API_TOKEN_SCOPES: Final[frozenset[Scope]] = frozenset(get_args(Scope)) - {"tokens"}
"""Not ``tokens``: one that leaks must not be able to have itself succeeded."""
Endpoint = tuple[Method, str]
"""A method, and a path as its route spells it."""


@dataclass(frozen=True)
class Access:
    """A row: who may call an endpoint."""

    members: frozenset[Role] = frozenset()
    """Roles of the charter's members, told by their client certificates."""
    people: frozenset[PersonRole] = frozenset()
    """Roles of people."""
    scope: Scope | None = None
    """What an API token of such a role must have been given besides; ``None`` asks for nothing."""
    anyone: bool = False
    """Open to strangers, without a certificate."""


Table = Mapping[Endpoint, Access]

_ANYONE: Final = Access(anyone=True)
_MEMBERS: Final = Access(frozenset({"silo", "aggregator", "share_server", "researcher"}))
_RESEARCHER: Final = Access(frozenset({"researcher"}))
_SILO: Final = Access(frozenset({"silo"}))
_OUR_AGGREGATOR: Final = Access(frozenset({"aggregator"}))

_PEOPLE: Final[frozenset[PersonRole]] = frozenset(PERSON_ROLES)

_LOG_READERS: Final[frozenset[PersonRole]] = frozenset({"site_admin", "dpo", "security", "auditor"})

_EVERY_SERVER: Final[Table] = {
    ("PUT", "/v1/charter"): _MEMBERS,  # it is its officers' word, whoever carries it
    ("GET", "/livez"): _ANYONE,
    ("GET", "/readyz"): _ANYONE,
    ("GET", "/v1/login"): _ANYONE,  # which issuer to go to: whoever would log in has nothing to show yet
    ("GET", "/v1/whoami"): Access(_MEMBERS.members, _PEOPLE),
    ("GET", "/v1/operators"): Access(
        people=frozenset({"site_admin", "dpo", "security", "auditor"}), scope="operators"
    ),
    ("POST", "/v1/tokens"): Access(people=frozenset({"site_admin"}), scope="tokens"),
    ("GET", "/v1/tokens"): Access(people=frozenset({"site_admin", "security", "auditor"}), scope="operators"),
    ("DELETE", "/v1/tokens/{token}"): Access(people=frozenset({"site_admin", "security"}), scope="tokens"),
    ("GET", "/v1/log"): Access(frozenset({"silo", "researcher"}), _LOG_READERS, "logs"),
    ("GET", "/v1/log/checkpoint"): Access(_MEMBERS.members, _LOG_READERS, "logs"),
    ("GET", "/v1/log/consistency"): Access(_MEMBERS.members, _LOG_READERS, "logs"),
    ("GET", "/v1/log/inclusion"): Access(_MEMBERS.members, _LOG_READERS, "logs"),
    ("POST", "/v1/log/cosignatures"): _SILO,
}

AGGREGATOR: Final[Table] = {
    **_EVERY_SERVER,
    ("GET", "/v1/charter"): Access(_MEMBERS.members, _PEOPLE, "charter"),
    ("GET", "/v1/policy"): Access(_MEMBERS.members, _PEOPLE, "policy"),
    ("PUT", "/v1/models/{digest}"): _RESEARCHER,
    ("GET", "/v1/models/{digest}"): Access(
        frozenset({"silo", "researcher"}), frozenset({"researcher"}), "models"
    ),
    ("POST", "/v1/jobs"): _RESEARCHER,
    ("GET", "/v1/jobs/{job}"): Access(_MEMBERS.members, _PEOPLE, "jobs"),
    ("GET", "/v1/job-list"): Access(_MEMBERS.members, _PEOPLE, "jobs"),
    ("GET", "/v1/jobs/{job}/evidence"): Access(
        frozenset({"researcher"}), frozenset({"dpo", "security", "auditor", "researcher"}), "evidence"
    ),
    ("GET", "/v1/jobs/{job}/attacks"): Access(
        frozenset({"silo", "researcher"}), frozenset({"dpo", "security", "auditor", "researcher"}), "evidence"
    ),
    ("PUT", "/v1/jobs/{job}/attacks"): Access(frozenset({"silo", "researcher"})),
    ("GET", "/v1/upkeep"): Access(people=_LOG_READERS, scope="upkeep"),
    ("POST", "/v1/drain"): Access(people=frozenset({"site_admin"}), scope="upkeep"),
    ("DELETE", "/v1/drain"): Access(people=frozenset({"site_admin"}), scope="upkeep"),
    ("POST", "/v1/holds"): Access(people=frozenset({"site_admin", "dpo", "security"}), scope="upkeep"),
    # Whoever may delete does not lift what keeps her from it.
    ("DELETE", "/v1/holds/{job}"): Access(people=frozenset({"dpo", "security"}), scope="upkeep"),
    ("POST", "/v1/expire"): Access(people=frozenset({"site_admin"}), scope="upkeep"),
    ("POST", "/v1/collect"): Access(people=frozenset({"site_admin"}), scope="upkeep"),
    ("PUT", "/v1/jobs/{job}/he-key"): _SILO,
    ("GET", "/v1/jobs/{job}/he-key"): _SILO,
    ("GET", "/v1/jobs"): _SILO,
    ("POST", "/v1/jobs/{job}/readiness"): _SILO,
    ("GET", "/v1/offers"): _SILO,
    ("GET", "/v1/ledger-heads"): _SILO,
    ("POST", "/v1/rounds/{ctx}/manifests"): _SILO,
    ("POST", "/v1/rounds/{ctx}/refusals"): _SILO,
    ("GET", "/v1/rounds/{ctx}/steps/{step}"): _SILO,
    ("POST", "/v1/rounds/{ctx}/steps/{step}"): _SILO,
    ("PUT", "/v1/rounds/{ctx}/files/{name}/{index}"): _SILO,
    ("GET", "/v1/rounds/{ctx}/files/{name}/{index}"): _SILO,
    ("GET", "/v1/rounds/{ctx}/next"): _SILO,
    ("GET", "/v1/rounds/{ctx}/result"): _MEMBERS,
}

SHARE_SERVER: Final[Table] = {
    **_EVERY_SERVER,
    ("POST", "/v1/rounds"): _OUR_AGGREGATOR,
    ("GET", "/v1/ledger-heads"): _SILO,
    ("PUT", "/v1/rounds/{ctx}/parts/{index}"): _SILO,
    ("POST", "/v1/rounds/{ctx}/manifests"): _SILO,
    ("GET", "/v1/rounds/{ctx}/manifests/{silo}"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/close"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/agree"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/release"): _OUR_AGGREGATOR,
    ("GET", "/v1/rounds/{ctx}/opening/{index}"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/finish"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/coins/{over}/commit"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/coins/{over}/reveal"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/coins/{over}/settle"): _OUR_AGGREGATOR,
    ("PUT", "/v1/rounds/{ctx}/witness"): _SILO,
    ("POST", "/v1/rounds/{ctx}/proofs"): _SILO,
    ("POST", "/v1/rounds/{ctx}/proofs/close"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/checks/{silo}"): _OUR_AGGREGATOR,
    ("GET", "/v1/rounds/{ctx}/checks/{silo}"): _OUR_AGGREGATOR,
    ("PUT", "/v1/rounds/{ctx}/checks/{silo}/{of}"): _OUR_AGGREGATOR,
    ("POST", "/v1/rounds/{ctx}/judge"): _OUR_AGGREGATOR,
}

REGISTRAR: Final[Table] = {
    ("POST", "/v1/enroll"): _ANYONE,  # who holds a one-time token; a party has no certificate yet
    ("POST", "/v1/renew"): _ANYONE,  # signed by the party's identity key; its certificate may have ended
    ("GET", "/v1/charter"): _ANYONE,  # public within its signatures
}

"""Putting together, from a server's settings, whom it knows of people and how they prove it."""

from __future__ import annotations

import ssl
import time

import httpx

from aggregator.operators.api_tokens import ApiTokens
from aggregator.operators.callers import People
from aggregator.operators.issuer_keys import IssuerKeys
from aggregator.operators.oidc import AccessTokens
from aggregator.operators.operator import Pseudonyms
from aggregator.operators.settings import OperatorsSettings
from aggregator.settings import ServerSettings
from aggregator.store import Store
from privacy.errors import ConfigurationError
from privacy.keystore import Identity, read_file
from privacy.roster import Charter

PSEUDONYM_KEY = "pseudonym.key"


def admit_people(
    settings: ServerSettings,
    charter: Charter,
    store: Store,
    identity: Identity,
    issuer: httpx.AsyncBaseTransport | None = None,
) -> People:
    """Who may come, by ``operators:`` and ``oidc:``; ``issuer`` replaces the network to it.

    Raises:
        ConfigurationError: a file is not as it must be, or a person is registered with a member's key.
    """
    operators = settings.operators or OperatorsSettings()
    members = {member.verify_key: member.id for member in charter.members}
    for name, one in operators.people.items():
        if one.verify_key in members:
            raise ConfigurationError(
                f"operators.people.{name}.verify_key: it is the key of member {members[one.verify_key]}; "
                "a person has a key of her own: sealsum keys new"
            )
    pseudonyms = Pseudonyms.kept(settings.state_dir / PSEUDONYM_KEY)
    oidc = settings.oidc
    return People(
        registered=dict(operators.people),
        pseudonyms=pseudonyms,
        api_tokens=ApiTokens(store, pseudonyms, operators.token_days_max, time.time),
        issuer="" if oidc is None else oidc.issuer,
        access_tokens=None if oidc is None else AccessTokens(oidc, IssuerKeys(oidc, time.monotonic, issuer)),
        standing=identity.standing,
        other_authorities=operators.ca is not None,
    )


def server_context(settings: ServerSettings, identity: Identity) -> ssl.SSLContext:
    """The identity's TLS context, which also takes client certificates of the operators' CAs.

    Raises:
        ConfigurationError: ``operators.ca`` cannot be read.
    """
    context = identity.server_context
    if settings.operators is not None and settings.operators.ca is not None:
        try:
            context.load_verify_locations(cadata=read_file(settings.operators.ca).decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"operators.ca: {settings.operators.ca}: expected CA certificates in PEM"
            ) from error
    return context

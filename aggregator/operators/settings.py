"""``operators:`` and ``oidc:`` of ``server.yaml``: which people may come to a server, and who vouches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from privacy.canonical import Frozen
from privacy.ids import HexKey, Name
from privacy.people import PersonRole

Word = Annotated[str, Field(min_length=1, max_length=200)]
HttpsUrl = Annotated[str, Field(pattern=r"^https://[^\s?#]+$", max_length=300)]
Roles = Annotated[tuple[PersonRole, ...], Field(min_length=1)]

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""Signatures that are taken of an issuer: asymmetric ones only, so that a public key never verifies a MAC."""


class OperatorSettings(Frozen):
    """One person who is registered by name."""

    roles: Roles
    verify_key: HexKey | None = None
    """Raw Ed25519 key of her client certificate, as hex."""
    subject: Word | None = None
    """Her ``sub`` at the issuer of ``oidc:``."""
    legal_entity: Annotated[str, Field(max_length=200)] = ""
    """Her institution, as the charter spells it: the threat model may give models to silos' only."""

    @model_validator(mode="after")
    def _can_be_told(self) -> Self:
        if self.verify_key is None and self.subject is None:
            raise ValueError(
                "expected verify_key (of her certificate) or subject (hers at the issuer), got neither"
            )
        return self


class OperatorsSettings(Frozen):
    """Registered people, and what API tokens may last."""

    ca: Path | None = None
    """PEM of the CAs that issue operators' client certificates, beside the federation's."""
    people: dict[Name, OperatorSettings] = Field(default_factory=dict)
    token_days_max: Annotated[int, Field(ge=1, le=366)] = 90
    """Longest life of an API token."""

    @field_validator("people")
    @classmethod
    def _are_distinct(cls, people: dict[str, OperatorSettings]) -> dict[str, OperatorSettings]:
        for field in ("verify_key", "subject"):
            told = [value for one in people.values() if (value := getattr(one, field)) is not None]
            if len(set(told)) != len(told):
                raise ValueError(f"{field}: expected another one for each person")
        return people


class OidcSettings(Frozen):
    """The issuer whose access tokens (RFC 9068) are taken, and what its groups mean here."""

    issuer: HttpsUrl
    client_id: Word
    """The public client that ``sealsum login`` is registered as; tokens of other clients are refused."""
    audience: Word
    """What tokens for this federation's servers name as ``aud``; another federation has another."""
    scopes: tuple[Word, ...] = ("openid", "offline_access")
    """What ``sealsum login`` asks for; ``offline_access`` for a refresh token."""
    roles_claim: tuple[Word, ...] = ("groups",)
    """Where the groups are: a claim, or a path of names into one (Keycloak: ``[realm_access, roles]``)."""
    roles: dict[Word, PersonRole] = Field(default_factory=dict)
    """Group → role; other groups mean nothing."""
    typ: Literal["at+jwt", "JWT"] = "at+jwt"
    """The header's. ``JWT`` is for issuers that do not keep to RFC 9068; audience and client still hold."""
    leeway_s: Annotated[int, Field(ge=0, le=120)] = 30
    """How far the issuer's clock may be from ours."""
    ca: Path | None = None
    """PEM of the CA of the issuer's TLS certificate; the system's if left out. Relative to the file."""

    @field_validator("roles_claim", mode="before")
    @classmethod
    def _one_name_is_a_path(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _id_tokens_are_not_access_tokens(self) -> Self:
        if self.audience == self.client_id:
            raise ValueError(
                "audience: expected another one than client_id, as ID tokens have that for audience"
            )
        return self

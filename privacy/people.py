"""People of an institution: which roles they have, and the key each signs decisions with.

A party's keys sign what machines say; a person's key signs what she decided herself. Knows no files.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from privacy.canonical import Frozen
from privacy.ids import HexKey, Name

PersonRole = Literal["site_admin", "data_steward", "dpo", "security", "auditor", "researcher"]
PERSON_ROLES: tuple[PersonRole, ...] = get_args(PersonRole)
PersonName = Name


class Person(Frozen):
    """One person as her institution registers her."""

    roles: Annotated[tuple[PersonRole, ...], Field(min_length=1)]
    verify_key: HexKey
    """Of the key that ``sealsum keys new`` made for her and nobody else holds."""

    @field_validator("roles")
    @classmethod
    def _roles_are_distinct(cls, roles: tuple[PersonRole, ...]) -> tuple[PersonRole, ...]:
        if len(set(roles)) != len(roles):
            raise ValueError("roles: expected each role once")
        return roles

"""Results of ``sealsum audit attack`` on their way into a pack: read for form, never believed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError

_Text = Annotated[str, Field(max_length=500)]
_MOST_BYTES = 1 << 20
ENTRY = "tests/attack.json"
"""Where a pack holds them."""


class AttackRow(Frozen):
    """One attack under one protection."""

    name: _Text
    protection: _Text
    protected: bool
    succeeded: bool
    measured: _Text
    expected: _Text
    verdict: Literal["consistent", "VIOLATED", "succeeds", "NO POWER"]
    figures: dict[_Text, float]


class AttackResults(Frozen):
    """``attack.json``."""

    suite: Literal["quick", "full"]
    version: _Text
    ok: bool
    duration_s: float
    attacks: Annotated[tuple[AttackRow, ...], Field(min_length=1, max_length=1000)]


def checked_results(raw: bytes) -> AttackResults:
    """What ``sealsum audit attack`` wrote.

    Raises:
        ConfigurationError: they are not.
    """
    if len(raw) > _MOST_BYTES:
        raise ConfigurationError(f"--attack-results: expected at most {_MOST_BYTES} bytes, got {len(raw)}")
    try:
        return AttackResults.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"]) or "file"
        raise ConfigurationError(
            f"--attack-results: {where}: {fault['msg']}; give attack.json of sealsum audit attack --out"
        ) from error

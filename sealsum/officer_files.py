"""The files that pass between officers: their own document, a proposed charter, a signature on it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from privacy.canonical import Frozen, parse_canonical
from privacy.errors import ConfigurationError, MalformedMessage
from privacy.keystore import read_file
from privacy.officers import Officers
from privacy.wire.charter import MAX_CHARTER_BYTES, EndorsedCharter
from privacy.wire.proposal import Endorsement

F = TypeVar("F", bound=Frozen)


def read_officers(path: Path) -> Officers:
    """What ``sealsum officer list`` wrote.

    Raises:
        ConfigurationError: it is something else.
    """
    return _read(path, Officers, "officers, as written by 'sealsum officer list'")


def read_charter_file(path: Path) -> EndorsedCharter:
    """A proposed or endorsed charter; nothing in it is believed yet.

    Raises:
        ConfigurationError: it is something else.
    """
    return _read(path, EndorsedCharter, "a charter or a proposal, as 'sealsum federation' writes them")


def read_endorsement(path: Path) -> Endorsement:
    """One officer's signature.

    Raises:
        ConfigurationError: it is something else.
    """
    return _read(path, Endorsement, "a signature, as written by 'sealsum officer sign'")


def _read(path: Path, model: type[F], what: str) -> F:
    try:
        return model.model_validate(parse_canonical(read_file(path), MAX_CHARTER_BYTES))
    except (ValidationError, MalformedMessage) as error:
        fault = (
            error.errors(include_input=False, include_url=False)[0]["msg"]
            if isinstance(error, ValidationError)
            else str(error)
        )
        raise ConfigurationError(f"{path}: expected {what} ({fault})") from error

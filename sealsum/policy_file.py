"""A threat model named on the command line: a shipped profile or a file, and the parents that it extends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from policies.loader import LoadedPolicy, load_threat_model
from policies.profiles import PROFILES, profile_text
from policies.yaml_text import MAX_BYTES
from privacy.errors import ConfigurationError


def read_policy_text(name_or_path: str) -> str:
    """The text of a shipped profile, or of a file.

    Raises:
        ConfigurationError: neither a profile nor a readable text file.
    """
    if name_or_path in PROFILES:
        return profile_text(name_or_path)
    path = Path(name_or_path)
    try:
        if not path.is_file():
            raise ConfigurationError(
                f"policy: expected a file or one of the profiles {', '.join(PROFILES)}; got {name_or_path!r}"
            )
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"policy {path}: expected a readable UTF-8 file; got {type(error).__name__}"
        ) from error


def read_policy(name_or_path: str, parents: Iterable[str] = ()) -> LoadedPolicy:
    """The threat model of a shipped profile, or of a file; ``parents`` are named likewise.

    Raises:
        ConfigurationError: neither a profile nor a readable text file.
        PolicyInvalid: with every fault of the file.
    """
    return load_threat_model(read_policy_text(name_or_path), [read_policy_text(parent) for parent in parents])

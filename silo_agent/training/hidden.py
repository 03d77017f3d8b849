"""What a worker must not see: where keys, ledgers and passwords lie. Knows no processes."""

from __future__ import annotations

from pathlib import Path

from privacy.errors import ConfigurationError
from privacy.key_reference import Reference
from privacy.keystore import Identity
from silo_agent.settings import SiloSettings


def hidden_from_worker(settings: SiloSettings, identity: Identity) -> tuple[Path, ...]:
    """Where keys, ledgers and passwords lie: covered before the worker begins.

    Raises:
        ConfigurationError: the worker would have to read something there.
    """
    references: list[tuple[str, Reference | None]] = [
        *identity.places,
        ("proxy_credentials", settings.proxy_credentials),
    ]
    references += [
        (f"datasets.{name}", one.sql.password) for name, one in settings.datasets.items() if one.sql
    ]
    files = [one.path(field) for field, one in references if one is not None]
    hidden = (settings.state_dir.resolve(), *(path.resolve() for path in files if path is not None))
    for field, path in _read_by_worker(settings):
        if any(path.resolve().is_relative_to(one) for one in hidden):
            raise ConfigurationError(
                f"{field}: expected it outside state_dir and apart from keys, which the worker does not see, "
                f"got {path}; move it, or write worker: {{process: false}}"
            )
    return hidden


def _read_by_worker(settings: SiloSettings) -> list[tuple[str, Path]]:
    found = [(f"public_models.{name}", path) for name, path in settings.public_models.items()]
    for name, dataset in settings.datasets.items():
        if dataset.path is not None:
            found.append((f"datasets.{name}.path", dataset.path))
        beside = dataset.pictures
        for kind, path in () if beside is None else (("table", beside.table), ("masks", beside.masks)):
            if path is not None:
                found.append((f"datasets.{name}.pictures.{kind}", path))
    return found

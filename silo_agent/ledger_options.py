"""Which ledger a command is about: its settings, identity, file and the name of its chain."""

from __future__ import annotations

from pathlib import Path

import click

from privacy.errors import ConfigurationError
from privacy.ids import SiloId
from privacy.keystore import Identity, load_identity
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin
from silo_agent.settings import SiloSettings, read_settings

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/etc/sealsum/silo.yaml"),
    show_default=True,
    help="The silo's settings.",
)


def find_ledger(config: Path, dataset: str) -> tuple[SiloSettings, Identity, Path, str]:
    """Settings, identity, and a dataset's ledger: its file and the name of its chain.

    Raises:
        ConfigurationError: the settings have no such dataset.
    """
    settings = read_settings(config)
    identity = load_identity(settings.state_dir)
    if dataset not in settings.datasets:
        known = ", ".join(settings.datasets)
        raise ConfigurationError(f"--dataset: expected one of {known}, got {dataset!r}")
    origin = ledger_origin(identity.pin.federation, SiloId(identity.pin.party), dataset)
    return settings, identity, ledger_path(settings.state_dir, dataset), origin

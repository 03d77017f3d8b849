"""``sealsum silo run``: start the agent, hand it the signals, end with its exit code."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from types import FrameType

import click

from privacy.errors import ConfigurationError
from privacy.keystore import load_identity
from silo_agent.agent import Agent
from silo_agent.datasets import assert_readable
from silo_agent.durable import private_directory
from silo_agent.health import health_of
from silo_agent.json_log import log_to_stderr
from silo_agent.ledger_commands import config_option
from silo_agent.own_policy import assert_scheme_runs, load_own_policy
from silo_agent.settings import read_settings

_log = logging.getLogger(__name__)


@click.command()
@config_option
@click.option("--until-idle", is_flag=True, help="End when the job that was served is over.")
@click.pass_context
def run(context: click.Context, config: Path, until_idle: bool) -> None:
    """Serve jobs: dial out, train under the budget, upload shares.

    Ends with 0 when told to stop, or (--until-idle) when its job is over; with 4 when no privacy budget is
    left. Progress goes to stderr as JSON lines.
    """
    settings = read_settings(config)
    log_to_stderr(settings.log_level)
    os.umask(0o077)
    identity = load_identity(private_directory(settings.state_dir))
    if identity.pin.role != "silo":
        raise ConfigurationError(
            f"state_dir: expected the identity of a silo, got one of a {identity.pin.role}"
        )
    own_policy = load_own_policy(settings)
    assert_scheme_runs(own_policy, settings)
    for dataset in settings.datasets.values():
        assert_readable(dataset)
    _log.info(
        "starting",
        extra={
            "silo": identity.pin.party,
            "federation": identity.pin.federation,
            "aggregator": settings.aggregator_url,
            "datasets": sorted(settings.datasets),
        },
    )
    agent = Agent(settings, identity, own_policy)

    def stop(_number: int, _frame: FrameType | None) -> None:
        agent.stop()

    try:
        with health_of(settings, identity, agent):
            _log.info("serving")
            signal.signal(signal.SIGTERM, stop)
            signal.signal(signal.SIGINT, stop)
            code = agent.run(until_idle)
    finally:
        agent.close()
    context.exit(code)

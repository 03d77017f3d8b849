"""``sealsum silo run``: start the agent, hand it the signals, start it anew under changed settings."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from types import FrameType

import click

from policies.health.renewal import Upkeep
from privacy.errors import ConfigurationError
from privacy.keystore import load_identity
from silo_agent.agent import Agent
from silo_agent.data.sources import assert_readable
from silo_agent.egress import egress_of
from silo_agent.footing import assert_private
from silo_agent.health import health_of
from silo_agent.json_log import log_to_stderr
from silo_agent.ledger_commands import config_option
from silo_agent.meters import SiloMeters
from silo_agent.own_policy import assert_scheme_runs, load_own_policy
from silo_agent.renewing import post_to
from silo_agent.settings import SiloSettings, read_settings
from silo_agent.training.apart import trainer_for

_log = logging.getLogger(__name__)


@click.command(short_help="Serve jobs, under this silo's budget.")
@config_option
@click.option("--until-idle", is_flag=True, help="End when the job that was served is over.")
@click.pass_context
def run(context: click.Context, config: Path, until_idle: bool) -> None:
    """Serve jobs: dial out, train under the budget, upload shares.

    Ends with 0 when told to stop, or (--until-idle) when its job is over; with 4 when no privacy budget is
    left. SIGHUP reads certificates anew at once, and changed settings after the round. Progress goes to
    stderr as JSON lines.
    """
    os.umask(0o077)
    code = None
    while code is None:
        code = _Service(config, read_settings(config)).run(until_idle)
    context.exit(code)


class _Service:
    """One reading of the settings, and the agent under them."""

    def __init__(self, config: Path, settings: SiloSettings) -> None:
        """Look at everything that can be wrong before anybody is dialled.

        Raises:
            ConfigurationError: what is wrong, and what to do.
        """
        self._config = config
        self._settings = settings
        log_to_stderr(settings.log_level)
        self._identity = load_identity(assert_private(settings.state_dir))
        if self._identity.pin.role != "silo":
            raise ConfigurationError(
                f"state_dir: expected the identity of a silo, got one of a {self._identity.pin.role}"
            )
        self._own_policy = load_own_policy(settings)
        assert_scheme_runs(self._own_policy, settings)
        for dataset in settings.datasets.values():
            assert_readable(dataset)
        self._meters = SiloMeters(settings.state_dir)
        registrar = settings.registrar_url or self._identity.pin.registrar
        self._upkeep = Upkeep(
            self._identity, self._meters, post_to(self._identity, registrar, egress_of(settings))
        )
        self._told_to_stop = False
        self._changed = False

    def run(self, until_idle: bool) -> int | None:
        """Serve; the exit code, or ``None`` where the settings have changed."""
        identity, settings = self._identity, self._settings
        _log.info(
            "starting",
            extra={
                "silo": identity.pin.party,
                "federation": identity.pin.federation,
                "aggregator": settings.aggregator_url,
                "datasets": sorted(settings.datasets),
            },
        )
        self._upkeep.renew_if_ended()
        agent = Agent(settings, identity, self._own_policy, trainer_for(identity))
        try:
            with health_of(settings, identity, agent, self._meters), self._upkeep:
                _log.info("serving")
                self._listen_for_signals(agent)
                code = agent.run(until_idle)
        finally:
            agent.close()
        return None if self._changed and not self._told_to_stop else code

    def _listen_for_signals(self, agent: Agent) -> None:
        def stop(_number: int, _frame: FrameType | None) -> None:
            self._told_to_stop = True
            agent.stop()

        def reload(_number: int, _frame: FrameType | None) -> None:
            self._upkeep.reload()
            if self._has_changed():
                self._changed = True
                agent.stop(after_the_round=True)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, reload)

    def _has_changed(self) -> bool:
        """Whether the settings are others now; such as cannot be read leave those in force."""
        try:
            return read_settings(self._config) != self._settings
        except ConfigurationError as error:
            _log.error("reload_failed", extra={"reason": str(error)})
            return False

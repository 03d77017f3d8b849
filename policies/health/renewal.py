"""Renewing the own certificate while the process runs: at two thirds of its life, with jitter.

A failure is told in the log and in the metrics, and tried again; the process goes on meanwhile.
"""

from __future__ import annotations

import logging
import secrets
import threading
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from policies.health.certificate import Post, due_at, renew, retry_after
from policies.health.checks import read_certificate
from policies.health.meters import Meters
from privacy.errors import ConfigurationError, SealsumError
from privacy.keystore import Identity

_LOOK_S: Final = 3600.0
"""The wall clock may be set: how late it is is looked at no less often than this."""
_log = logging.getLogger(__name__)


class Upkeep:
    """Renews in a thread, and reloads what an administrator has replaced. Use it in a ``with`` block."""

    def __init__(self, identity: Identity, meters: Meters, post: Post | None) -> None:
        """``post`` is ``None`` where no registrar is known: nothing is renewed then."""
        self._identity = identity
        self._meters = meters
        self._post = post
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    def __enter__(self) -> Self:
        self._tell_passed_over()
        if self._post is not None:
            self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._ending.set()
        if self._post is not None:
            self._thread.join()

    def renew_if_ended(self) -> None:
        """Renew now if the certificate is over: nobody would be answered with it.

        Raises:
            SealsumError: it is over, and cannot be renewed.
        """
        end = read_certificate(self._identity.directory / "identity.pem").not_valid_after_utc
        if datetime.now(UTC) >= end and self._post is not None:
            self._renew()

    def reload(self) -> None:
        """Show and believe what is on disk now (SIGHUP). What does not load leaves everything as it was."""
        try:
            self._identity.reload()
        except ConfigurationError as error:
            self._meters.reloads.labels("failed").inc()
            _log.error("reload_failed", extra={"reason": str(error)})
            return
        self._meters.reloads.labels("done").inc()
        _log.info("reloaded")
        self._tell_passed_over()

    def _tell_passed_over(self) -> None:
        """A list that does not count revokes nothing, which whoever put it there must learn."""
        if count := self._identity.standing.passed_over:
            _log.warning("revocation_lists_passed_over", extra={"lists": count})

    def _run(self) -> None:
        jitter = secrets.randbelow(1 << 20) / (1 << 20)
        pause = timedelta()
        while not self._ending.wait(min(pause.total_seconds(), _LOOK_S)):
            pause = self._look(jitter)

    def _look(self, jitter: float) -> timedelta:
        """Renew if it is time; how long until the next look."""
        end = datetime.now(UTC)
        try:
            certificate = read_certificate(self._identity.directory / "identity.pem")
            end = certificate.not_valid_after_utc
            due = due_at(certificate.not_valid_before_utc, end, jitter)
            if datetime.now(UTC) < due:
                return due - datetime.now(UTC)
            self._renew()
        except (SealsumError, OSError) as error:
            self._meters.renewals.labels("failed").inc()
            _log.warning("renewal_failed", extra={"reason": str(error)})
            return retry_after(end - datetime.now(UTC), jitter)
        return timedelta()

    def _renew(self) -> None:
        assert self._post is not None  # noqa: S101 - the thread runs only where there is one
        until = renew(self._identity, self._post, datetime.now(UTC))
        self._meters.renewals.labels("done").inc()
        _log.info("renewed", extra={"until": until.isoformat(timespec="seconds")})

"""A PostgreSQL of a test's own: a new cluster in a new directory, on a socket there, ended with the test."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

ROLE = "sealsum"
_ACCOUNTS = ("postgres", "nobody")
"""Who runs it when we are root, as which it refuses to run."""


def binary_directory() -> Path | None:
    """Where ``initdb`` and ``postgres`` are, if they are installed."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        candidates.insert(0, Path(on_path).parent)
    for directory in candidates:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


@dataclass
class Cluster:
    """One running cluster; its application role has a password, found in ``passfile``."""

    binaries: Path
    root: Path
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    process: subprocess.Popen[bytes] | None = None

    @property
    def passfile(self) -> Path:
        """What libpq reads the password from."""
        return self.root / "passfile"

    def url(self, database: str, passfile: Path | None = None) -> str:
        """What an operator writes into ``server.yaml``."""
        return (
            f"postgresql+psycopg://{ROLE}@/{database}?host={self.root}&passfile={passfile or self.passfile}"
        )

    def ask(self, statement: str) -> list[Any]:
        """Run a statement as the cluster's administrator."""
        with psycopg.connect(self._address("postgres", "postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []

    def new_database(self) -> str:
        """An empty database of the application role."""
        name = f"d{secrets.token_hex(4)}"
        self.ask(f"CREATE DATABASE {name} OWNER {ROLE}")
        return name

    def create(self) -> None:
        """Make the cluster, start it, add the role."""
        secret = self.root / "admin"
        for path in (secret, self.passfile):
            path.touch(mode=0o600)
        secret.write_text(self.password)
        self.passfile.write_text(f"*:*:*:*:{self.password}\n")
        if os.geteuid() == 0:
            account = pwd.getpwnam(self._account["user"])
            for path in (self.root, secret):
                os.chown(path, account.pw_uid, account.pw_gid)
        where = ["-D", str(self.root / "cluster"), "-U", "postgres", "-E", "UTF8", "--no-sync"]
        subprocess.run(
            [str(self.binaries / "initdb"), *where, "--auth=scram-sha-256", f"--pwfile={secret}"],
            check=True,
            capture_output=True,
            cwd=self.root,
            **self._account,
        )
        self.start()
        self.ask(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self.password}'")

    def start(self) -> None:
        """Start it and wait until it answers."""
        where = ["-D", str(self.root / "cluster"), "-k", str(self.root), "-c", "listen_addresses="]
        with (self.root / "log").open("ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [str(self.binaries / "postgres"), *where],
                stdout=log,
                stderr=log,
                cwd=self.root,
                **self._account,
            )
        self.process = process
        until = time.monotonic() + 60
        while True:
            try:
                self.ask("SELECT 1")
            except psycopg.OperationalError:
                assert process.poll() is None, (self.root / "log").read_text()
                assert time.monotonic() < until, (self.root / "log").read_text()
                time.sleep(0.1)
            else:
                return

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT is a fast shutdown, SIGQUIT a crash without one."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=60)
            self.process = None

    @property
    def _account(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        for name in _ACCOUNTS:
            with contextlib.suppress(KeyError):
                return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
        raise AssertionError(f"expected one of the accounts {_ACCOUNTS}: PostgreSQL does not run as root")

    def _address(self, role: str, database: str) -> str:
        return f"host={self.root} user={role} dbname={database} passfile={self.passfile}"


@contextmanager
def running_cluster(binaries: Path) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts."""
    # Not pytest's directory: another account must enter it, and a socket's path must be short.
    root = Path(tempfile.mkdtemp(prefix="sealsum-pg-"))
    cluster = Cluster(binaries, root)
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root)

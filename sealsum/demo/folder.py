"""The folder a demo run leaves behind: laid out in one place, and replaced only if a demo made it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from privacy.errors import ConfigurationError

MARKER = ".sealsum-demo"
_MARKER_TEXT = "Made by `sealsum demo`; another run with --out here replaces everything in this folder.\n"


@dataclass(frozen=True)
class DemoFolder:
    """Where things lie under ``--out``."""

    root: Path

    @property
    def logs(self) -> Path:
        """One log file a process."""
        return self.root / "logs"

    @property
    def parties(self) -> Path:
        """One private directory a party; in a real federation these are on different machines."""
        return self.root / "parties"

    @property
    def harness(self) -> Path:
        """What belongs to the demo itself and to no party: invitations on their way, held-out patients."""
        return self.root / "harness"

    @property
    def summary(self) -> Path:
        """The figures, for machines."""
        return self.root / "summary.json"

    @property
    def report(self) -> Path:
        """The figures, for people."""
        return self.root / "report.html"

    @property
    def picture(self) -> Path:
        """AUC and ε burn-down as one image."""
        return self.root / "demo.png"

    @property
    def model(self) -> Path:
        """The final model."""
        return self.root / "model.safetensors"

    @property
    def evidence(self) -> Path:
        """The evidence pack."""
        return self.root / "evidence.zip"

    def party(self, name: str) -> Path:
        """The private directory of one party."""
        return self.parties / name

    def state(self, name: str) -> Path:
        """The state directory of one party: its keys, ledger or database."""
        return self.party(name) / "state"


def prepare_folder(root: Path) -> DemoFolder:
    """Make an empty demo folder, replacing an earlier run's.

    Raises:
        ConfigurationError: it is not a directory, or holds files that no demo run has put there.
    """
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"--out {root}: expected a directory, got a file; name another one")
    if root.is_dir() and any(root.iterdir()):
        if not (root / MARKER).is_file():
            raise ConfigurationError(
                f"--out {root}: expected an empty folder or an earlier demo's, got one with other files; "
                "name another one"
            )
        for entry in root.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != MARKER:
                entry.unlink()
    root.mkdir(parents=True, exist_ok=True)
    (root / MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
    folder = DemoFolder(root.resolve())
    folder.logs.mkdir()
    for private in (folder.parties, folder.harness):
        os.mkdir(private, 0o700)
    return folder

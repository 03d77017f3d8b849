"""job.yaml as it was written, for commands that change some of its fields before they read it as a job.

Files that it names lie beside it, wherever the command is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from privacy.errors import ConfigurationError
from sealsum.yaml_file import read_yaml_tree

_FILES: Final = (("initial_model",), ("public_data", "file"), ("model", "base", "file"))
"""Where a job file names another."""


def read_tree(path: Path) -> dict[str, Any]:
    """The fields, unread.

    Raises:
        ConfigurationError: no YAML, or not of fields.
    """
    tree = read_yaml_tree(path)
    if not isinstance(tree, dict):
        raise ConfigurationError(
            f"{path}: expected a job file (YAML of `field: value`), got other text; give JOB.yaml before"
            " tables"
        )
    for *groups, field in _FILES:
        group: Any = tree
        for name in groups:
            group = group.get(name) if isinstance(group, dict) else None
        if isinstance(group, dict) and isinstance(group.get(field), str):
            group[field] = str(path.parent / group[field])
    return tree

"""A YAML file that somebody wrote by hand, read into its frozen form; every fault is named at once."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from policies.yaml_text import read_yaml
from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.keystore import read_file

Form = TypeVar("Form", bound=Frozen)


def read_yaml_file(path: Path, form: type[Form]) -> Form:
    """
    Raises:
        ConfigurationError: with every fault: the field, what was expected and what came.
    """
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: expected UTF-8 text") from error
    tree, findings = read_yaml(text)
    if findings:
        raise ConfigurationError(f"{path}:\n" + "\n".join(str(finding) for finding in findings))
    try:
        return form.model_validate(tree)
    except ValidationError as error:
        raise ConfigurationError(f"{path}:\n{faults_of(error)}") from error


def faults_of(error: ValidationError) -> str:
    """One line a fault."""
    lines = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(step) for step in fault["loc"]) or "the file"
        got = "" if fault["type"] == "missing" else f", got {str(fault['input'])[:80]!r}"
        lines.append(f"  {where}: {fault['msg']}{got}")
    return "\n".join(lines)

"""A YAML file that somebody wrote by hand, read into its frozen form; every fault is named at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

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
        return form.model_validate(read_yaml_tree(path))
    except ValidationError as error:
        raise ConfigurationError(f"{path}:\n{faults_of(error)}") from error


def faults_of(error: ValidationError) -> str:
    """One line a fault: the field, what was expected, what came and, if not plain, what to do."""
    return "\n".join(f"  {_told(fault)}" for fault in error.errors(include_url=False))


def _told(fault: ErrorDetails) -> str:
    where = ".".join(str(step) for step in fault["loc"])
    told = (
        fault["msg"]
        .removeprefix("Value error, ")
        .replace("String should match pattern", "expected text like")
    )
    if fault["type"] == "union_tag_invalid":
        kind, known = (fault["ctx"][name] for name in ("discriminator", "expected_tags"))
        return f"{where}.{kind.strip(chr(39))}: expected one of {known}, got {fault['ctx']['tag']!r}"
    if fault["type"] == "missing":
        return f"{where}: {told}; add it"
    if not where and fault["type"] == "value_error":
        return told  # of fields together: the sentence names them, and their whole tree tells nothing
    if fault["type"] == "value_error" and not isinstance(fault["input"], str | int | float | None):
        return f"{where}: {told}"  # likewise of a group of fields
    got = f"{where or 'the file'}: {told}, got {str(fault['input'])[:80]!r}"
    return f"{got}; correct its name or leave it out" if fault["type"] == "extra_forbidden" else got


def read_yaml_tree(path: Path) -> Any:
    """What the file holds, of no form yet.

    Raises:
        ConfigurationError: not UTF-8, or no YAML, with every fault.
    """
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: expected UTF-8 text") from error
    tree, findings = read_yaml(text)
    if findings:
        raise ConfigurationError(f"{path}:\n" + "\n".join(str(finding) for finding in findings))
    return tree

"""Which tensors of a model a person, or a job, means by "last", by the beginning of a name, or by "all"."""

from __future__ import annotations

from collections.abc import Sequence

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms


def tensors_of(asked: str, terms: ModelTerms) -> frozenset[str]:
    """Names of the tensors that ``all``, ``last`` or a list of beginnings stands for.

    Raises:
        ConfigurationError: a beginning that no tensor has.
    """
    names = [spec.name for spec in terms.layout]
    if asked == "all":
        return frozenset(names)
    if asked == "last":
        return last_layer(terms)
    return named(names, [part.strip() for part in asked.split(",")])


def last_layer(terms: ModelTerms) -> frozenset[str]:
    """The tensors of the module that the last tensor belongs to."""
    owner = terms.layout[-1].name.rpartition(".")[0]
    return frozenset(spec.name for spec in terms.layout if spec.name.rpartition(".")[0] == owner)


def named(names: Sequence[str], beginnings: Sequence[str]) -> frozenset[str]:
    """Tensors whose name is one of these, or begins with one of these and a dot.

    Raises:
        ConfigurationError: one of them is no tensor's.
    """
    found: set[str] = set()
    for beginning in beginnings:
        matching = {name for name in names if name == beginning or name.startswith(f"{beginning}.")}
        if not matching:
            raise ConfigurationError(
                f"layers: expected beginnings of {', '.join(names)}, got {beginning!r}, which none has"
            )
        found |= matching
    return frozenset(found)

"""Which tensors of a model a person means: all of them, or beginnings as a job would name them."""

from __future__ import annotations

from privacy.errors import ConfigurationError
from privacy.personal_terms import own_tensors
from privacy.plan import ModelTerms


def tensors_of(asked: str, terms: ModelTerms) -> frozenset[str]:
    """Names of the tensors that ``all``, ``last``, ``intercept`` or beginnings of names stand for.

    Raises:
        ConfigurationError: a beginning that no tensor has.
    """
    names = [spec.name for spec in terms.layout]
    if asked == "all":
        return frozenset(names)
    try:
        return own_tensors(names, [part.strip() for part in asked.split(",")])
    except ValueError as error:
        raise ConfigurationError(f"--layers: {error}") from error

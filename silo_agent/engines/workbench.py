"""The module and engine of the last model, checked once; a round of the same job only loads weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privacy.ids import Digest
from privacy.plan import ModelTerms
from silo_agent.engines.book_keeping import pass_shape
from silo_agent.engines.choice import engine_for
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.place import HERE, Place
from silo_agent.models.adapters import ModelAdapter, build_model, load_vector

_Key = tuple[type[ModelAdapter], Digest, int]


class Workbench:
    """Used by one round at a time; nothing of it stays in the module but weights, which the next replaces."""

    def __init__(self, place: Place = HERE, pass_records: int | None = None) -> None:
        """
        Args:
            pass_records: the most records in one pass of an engine; its own bound if left out.
        """
        self._place = place
        self._pass_records = pass_records
        self._held: tuple[_Key, StepEngine] | None = None

    def engine(
        self,
        adapter: ModelAdapter,
        terms: ModelTerms,
        vector: NDArray[np.float32],
        expected: float = math.inf,
    ) -> StepEngine:
        """An engine of the model with these weights, float32[d], in training mode.

        Args:
            expected: the public number of records that a step draws: it decides the shape of passes.

        Raises:
            PolicyRefusal, ConfigurationError: as ``build_model`` and ``engine_for``.
        """
        shape = min(pass_shape(expected), self._pass_records or math.inf)
        key = (type(adapter), terms.architecture, int(shape))
        if self._held is None or self._held[0] != key:
            module = build_model(adapter, terms, vector).train().to(self._place.device)
            self._held = (
                key,
                engine_for(module, terms.inputs, key[2], self._place.precision, self._pass_records),
            )
        engine = self._held[1]
        load_vector(engine.module.train(), terms, vector)
        return engine

    @property
    def threads(self) -> int:
        """That compute a step."""
        return self._place.threads

    @property
    def engine_name(self) -> str:
        """Of the engine in use, and where it computes if not here, for the log; empty before the first."""
        if self._held is None:
            return ""
        name = self._held[1].name
        return name if self._place == HERE else f"{name} on {self._place}"

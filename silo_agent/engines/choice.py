"""Which engine a model is trained with; the log names it, and why."""

from __future__ import annotations

import logging
from typing import Final

from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.model_check import assert_private
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.engines.place import Precision
from silo_agent.engines.probe import assert_records_apart, assert_right, at_other_weights, public_records

_log = logging.getLogger(__name__)
_COARSE: Final = 2.0**-4
"""Part of the clip by which a sum of nine records may differ in bfloat16, whose numbers have eight bits."""


def engine_for(
    module: nn.Module,
    inputs: int,
    shape: int | None = None,
    precision: Precision = "float32",
    most: int | None = None,
) -> StepEngine:
    """The fastest engine that computes this module's gradients rightly, after the module has been checked.

    Args:
        module: in training mode.
        inputs: width of a record.
        shape: records in a pass of the engine that pads (``book_keeping.pass_shape``).
        precision: of layers' products. That the engine is right is seen in float32 first.
        most: records whose gradients are in memory together, in any engine; by its own bound if left out.

    Raises:
        ConfigurationError: no engine does, or the model cannot be trained privately at all.
    """
    assert_private(module)
    records = public_records(module, inputs)
    assert_records_apart(module, records)
    with at_other_weights(module):
        assert_records_apart(module, records)
    refusals: list[str] = []
    for make in (lambda: BookKeeping(module, shape), lambda: OpacusHooks(module, most)):
        try:
            engine: StepEngine = make()
            assert_right(engine, records)
            with at_other_weights(module):
                assert_right(engine, records)
        except ConfigurationError as refusal:
            refusals.append(str(refusal))
        else:
            # What refused was seen on public records: the reason may be logged.
            reason = "; ".join(refusals) or "it knows every layer, and takes one backward pass a step"
            _log.info("engine_chosen", extra={"engine": engine.name, "reason": reason})
            return engine if precision == "float32" else _coarser(engine, records, precision)
    raise ConfigurationError(f"model: no engine can train it privately: {'; '.join(refusals)}")


def _coarser(engine: StepEngine, records: Records, precision: Precision) -> StepEngine:
    """The same engine, multiplying in fewer bits.

    Raises:
        ConfigurationError: it cannot, or the model's gradients do not bear it.
    """
    if not isinstance(engine, BookKeeping):
        raise ConfigurationError(
            f"precision: expected float32 for this model, which is trained by {engine.name}, got "
            f"{precision}; only book_keeping sums what coarse products saw"
        )
    engine.precision = precision
    try:
        assert_right(engine, records, _COARSE)
    except ConfigurationError as refusal:
        raise ConfigurationError(
            f"precision: in {precision} the model's gradients are others than in float32; write "
            "precision: float32"
        ) from refusal
    return engine

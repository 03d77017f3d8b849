"""Which engine a model is trained with."""

from __future__ import annotations

from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.model_check import assert_private
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.engines.probe import assert_records_apart, assert_right, at_other_weights, public_records


def engine_for(module: nn.Module, inputs: int, shape: int | None = None) -> StepEngine:
    """The fastest engine that computes this module's gradients rightly, after the module has been checked.

    Args:
        module: in training mode.
        inputs: width of a record.
        shape: records in a pass of the engine that pads (``book_keeping.pass_shape``).

    Raises:
        ConfigurationError: no engine does, or the model cannot be trained privately at all.
    """
    assert_private(module)
    records = public_records(module, inputs)
    assert_records_apart(module, records)
    with at_other_weights(module):
        assert_records_apart(module, records)
    refusals: list[str] = []
    for make in (lambda: BookKeeping(module, shape), lambda: OpacusHooks(module)):
        try:
            engine: StepEngine = make()
            assert_right(engine, records)
            with at_other_weights(module):
                assert_right(engine, records)
        except ConfigurationError as refusal:
            refusals.append(str(refusal))
        else:
            return engine
    raise ConfigurationError(f"model: no engine can train it privately: {'; '.join(refusals)}")

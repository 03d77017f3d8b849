"""Names and shapes of the built-in models, and their public first weights. Knows no torch.

Researchers describe a job with it; silos check that what they build has exactly this layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms, TensorSpec
from privacy.update import flatten


def outputs_for(classes: int) -> int:
    """Logits a record: one tells two classes apart, and K > 2 classes take one each."""
    return 1 if classes == 2 else classes


def model_terms(adapter: str, inputs: int, hidden: Sequence[int] = (), outputs: int = 1) -> ModelTerms:
    """The terms of a built-in model: ``logistic``, or ``mlp`` with tanh layers of the sizes ``hidden``.

    Args:
        outputs: logits a record, as ``outputs_for`` counts them. They show in the layout alone.

    Raises:
        ConfigurationError: another adapter, or sizes that do not fit it.
    """
    if adapter not in ("logistic", "mlp"):
        raise ConfigurationError(f"model.adapter: expected logistic or mlp, got {adapter!r}")
    if (adapter == "mlp") != bool(hidden):
        raise ConfigurationError(
            f"model.hidden: expected sizes for mlp and none for logistic, got {list(hidden)}"
        )
    sizes = [inputs, *hidden, outputs]
    layout: list[TensorSpec] = []
    for number, (width_in, width_out) in enumerate(pairwise(sizes), start=1):
        layout.append(TensorSpec(name=f"layer{number}.weight", shape=(width_out, width_in)))
        layout.append(TensorSpec(name=f"layer{number}.bias", shape=(width_out,)))
    return ModelTerms(adapter=adapter, inputs=inputs, hidden=tuple(hidden), layout=tuple(layout))


def initial_vector(terms: ModelTerms, seed: int) -> NDArray[np.float32]:
    """A first model that anybody can recompute: zeros for one layer, else Glorot uniform (2010): float32[d].

    The seed is public and touches no data, key, mask or noise.
    """
    generator = np.random.default_rng(seed)
    tensors: dict[str, NDArray[np.float32]] = {}
    for spec in terms.layout:
        if len(spec.shape) < 2 or len(terms.layout) <= 2:
            tensors[spec.name] = np.zeros(spec.shape, dtype=np.float32)
        else:
            limit = np.sqrt(6.0 / (spec.shape[0] + spec.shape[1]))
            tensors[spec.name] = generator.uniform(-limit, limit, spec.shape).astype(np.float32)
    return flatten(terms, tensors)

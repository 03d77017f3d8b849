"""What the catalogue of training algorithms says of each: a row of ``sealsum.algorithms``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Terms = Mapping[str, Any]
"""Fields of ``TrainingTerms``, with ``server``, ``local`` and ``personal`` as mappings."""
TEN: Final = {"local_steps": 10, "learning_rate": 0.1, "server_learning_rate": 1.0}
"""Ten local steps a round."""


@dataclass(frozen=True)
class AlgorithmRow:
    """One algorithm of the catalogue."""

    terms: Terms | None
    """What it stands for without DP; ``None`` where it takes DP."""
    private: Terms | None
    """What it stands for with DP; ``None`` where it is refused, for the reason ``refused``."""
    silo: str
    server: str
    cost: str = "one sum"
    leaks: str = "nothing beside the sum"
    refused: str = ""
    """Why not with DP."""
    schemes: str = "all"
    further: tuple[str, ...] = field(default=())
    """Vectors that it sums beside the update."""

"""Settings under which the non-IID benchmark runs each algorithm: terms of a job file, and how many rounds.

What a recipe does not say is the catalogue's default (``sealsum algorithm list``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from benchmarks.noniid_grounds import IMAGE_PARTITIONS, NetworkName
from privacy.plan import TrainingTerms
from sealsum.algorithms import training_of

DEFAULT: Final = "fedavgm"
BASELINE: Final = "article"


@dataclass(frozen=True)
class Recipe:
    """One row of the benchmark."""

    training: Mapping[str, Any] = field(default_factory=dict)
    """As under ``training`` in a job file."""
    rounds: int = 40
    scored_every: int = 1
    """Rounds; the last one always is."""
    dropped: float = 0.0
    """Share of the silos that drop out of each round, drawn by the seed."""
    bits: int | None = None
    """Of ``compression``; none where left out."""
    bound: float = 0.25
    """Of ``compression``."""
    network: NetworkName = "gradients"
    """Of images."""

    @property
    def terms(self) -> TrainingTerms:
        """What a job of this recipe would sign."""
        return TrainingTerms.model_validate(training_of(self.training, private=False))


_FIFTY: Final = {"num_updates": 50, "eta_l": 0.1, "batch_size": 64}
"""Fifty local steps: few rounds."""


def _fifty(algorithm: str, **more: Any) -> Recipe:
    return Recipe({"algorithm": algorithm, **_FIFTY, **more})


# 5 epochs of 15,000 records in batches of 64, learning rate 0.01, 20 rounds.
_ARTICLE: Final = Recipe(
    {"algorithm": "fedavg", "num_updates": 1170, "eta_l": 0.01, "batch_size": 64}, rounds=20
)
_DEFAULT: Final = Recipe({"algorithm": "fedavgm", "batch_size": 64}, rounds=300, scored_every=5)
_SCAFFOLD: Final = _fifty("scaffold")
_IMAGES: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        BASELINE: replace(_ARTICLE, network="cnn"),
        "article_settings": _ARTICLE,
        DEFAULT: _DEFAULT,
        "fedavg": _fifty("fedavg"),
        "scaffold": _SCAFFOLD,
        "scaffold_int8": replace(_SCAFFOLD, bits=8),
        "scaffold_dropout": replace(_SCAFFOLD, dropped=0.25),
        "scaffold_long": Recipe(
            {"algorithm": "scaffold", "num_updates": 150, "eta_l": 0.3, "batch_size": 64}, rounds=30
        ),
        "fedprox": _fifty("fedprox"),
        "fedadam": _fifty("fedadam"),
        "fedyogi": _fifty("fedyogi"),
        "agnostic": _fifty("agnostic"),
        "qfedavg": _fifty("qfedavg"),
        "mifa": _fifty("mifa"),
        "mifa_dropout": replace(_fifty("mifa"), dropped=0.25),
        "fedavg_dropout": replace(_fifty("fedavg"), dropped=0.25),
        "sqrt_n_over_divergence": _fifty("sqrt_n_over_divergence", weight_cap=20000),
        "quality": _fifty("quality"),
        "gradient_projection": _fifty("gradient_projection"),
        "fedavgm_cnn": replace(_DEFAULT, network="cnn"),
        "fedavg_cnn": replace(_fifty("fedavg"), network="cnn"),
        "scaffold_cnn": replace(_SCAFFOLD, network="cnn"),
    }
)


def _ten(algorithm: str, rounds: int = 100, **more: Any) -> Recipe:
    return Recipe({"algorithm": algorithm, "eta_l": 0.3, **more}, rounds=rounds)


_TABLES: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        DEFAULT: _ten("fedavgm"),
        **{
            name: _ten(name)
            for name in (
                "fedavg",
                "fedprox",
                "scaffold",
                "mifa",
                "agnostic",
                "quality",
                "gradient_projection",
            )
        },
        "fedadam": _ten("fedadam"),
        "fedyogi": _ten("fedyogi"),
    }
)
RECIPES: Final[Mapping[str, Mapping[str, Recipe]]] = MappingProxyType(
    {
        **dict.fromkeys(IMAGE_PARTITIONS, _IMAGES),
        "hospitals": {**_TABLES, "newton": Recipe({"algorithm": "newton"}, rounds=6)},
        "stores": _TABLES,
    }
)
"""Partition → algorithm → recipe."""
QUICK_ROUNDS: Final = 3


def quick(recipe: Recipe) -> Recipe:
    """The same for three rounds of at most five steps: whether it runs, not how well."""
    steps = {name: min(int(value), 5) for name, value in recipe.training.items() if name == "num_updates"}
    return replace(
        recipe, training={**recipe.training, **steps}, rounds=min(recipe.rounds, QUICK_ROUNDS), scored_every=1
    )

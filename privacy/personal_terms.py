"""What of a model is each silo's own while a job trains, and why most of it may not be so under DP.

Own parts never enter a sum: their coordinates of an update are exactly zero. Field names are FederatedScope's
(``local_param``, ``regular_weight``) where it has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen, Real
from privacy.vector_terms import PositiveReal

PersonalName = Literal["fedbn", "fedper", "mixed_intervals", "ditto", "per_fedavg"]
LAST, INTERCEPT = "last", "intercept"
"""Stand for the tensors of the last layer, and for its bias."""
Beginning = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,128}$")]

_SENTENCE_OWN = (
    "a part that each silo trains on its records without noise decides every record's gradient of the shared "
    "part, so that one record more moves all of them, not one clipped gradient"
)
_AFTERWARDS = "personalise after training (sealsum silo personalise), or use ditto, which feeds nothing back"
REFUSED_WITH_DP: Final[Mapping[PersonalName, str]] = MappingProxyType(
    {
        "fedbn": (
            "normalisation layers that each silo trains for itself, by statistics of its batch, make each "
            "record's gradient depend on the others'"
        ),
        "fedper": _SENTENCE_OWN,
        "mixed_intervals": (
            "layers that a round does not sum would be trained in it without noise, and carried into a later "
            "release that is charged as one round; in between, " + _SENTENCE_OWN
        ),
        "per_fedavg": (
            "a record's gradient is taken where a step along the other records has led, so that one record "
            "more moves all of them, not one clipped gradient"
        ),
    }
)
"""Why a kind breaks the bound of DP-SGD (Abadi et al. 2016): a record moves the sum by at most ``clip_l2``.
``tests/attacks/test_personal_bound.py`` shows for each that the bound is indeed exceeded."""


class PersonalTerms(Frozen):
    """How a job's model is made the silo's own, in its rounds; at their defaults fields are not spelled."""

    kind: PersonalName
    """``fedbn``: normalisation layers stay (Li et al. 2021, arXiv 2102.07623). ``fedper``: ``local_param``
    stays (Arivazhagan et al. 2019, arXiv 1912.00818). ``mixed_intervals``: ``local_param`` is summed in every
    ``every``-th round only. ``ditto``: a model beside the shared one (Li et al. 2021, arXiv 2012.04221).
    ``per_fedavg``: the shared model is trained to be good one step later (Fallah et al. 2020,
    arXiv 2002.07948).
    """
    local_param: tuple[Beginning, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Beginnings of tensors' names; ``last`` is the last layer, ``intercept`` its bias."""
    every: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1, exclude_if=lambda value: value == 1)
    regular_weight: PositiveReal | None = Field(default=None, exclude_if=lambda value: value is None)
    """Ditto's λ: how strongly the silo's own model is drawn to the shared one."""
    learning_rate: Annotated[Real, Field(gt=0, le=1e6)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Of ditto's own steps, and of per_fedavg's inner step."""
    steps: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Of ditto's own model a round."""

    @model_validator(mode="after")
    def _nothing_is_said_that_has_no_effect(self) -> Self:
        said: dict[str, tuple[Any, tuple[PersonalName, ...]]] = {
            "local_param": (self.local_param or None, ("fedper", "mixed_intervals")),
            "every": (None if self.every == 1 else self.every, ("mixed_intervals",)),
            "regular_weight": (self.regular_weight, ("ditto",)),
            "learning_rate": (self.learning_rate, ("ditto", "per_fedavg")),
            "steps": (self.steps, ("ditto",)),
        }
        for field, (value, kinds) in said.items():
            if (value is not None) != (self.kind in kinds):
                verb = "expected it with" if value is None else "expected it only with"
                raise ValueError(f"personal.{field}: {verb} {' or '.join(kinds)}, kind is {self.kind}")
        return self


def check_personal(
    personal: PersonalTerms | None, private: bool, names: Sequence[str], plain: bool, still: bool
) -> None:
    """Raises ValueError, saying why, unless own parts go with the rest of the job.

    Args:
        private: whether the job has DP.
        names: of the model's tensors, in order.
        plain: whether each silo's update is fedavg's, uncorrected and unprojected, weighted by public terms.
        still: whether the server moves nothing that no silo moves: plain steps without momentum.
    """
    if personal is None:
        return
    if private and personal.kind in REFUSED_WITH_DP:
        raise ValueError(
            f"training.personal: expected none of kind {personal.kind} with dp: "
            f"{REFUSED_WITH_DP[personal.kind]}; {_AFTERWARDS}"
        )
    if not plain and personal.kind != "ditto":
        raise ValueError(
            f"training.personal: expected fedavg, uniform or examples weights, no control and no projection "
            f"with {personal.kind}: they read updates as if the whole model were shared"
        )
    if not still and personal.kind == "mixed_intervals":
        raise ValueError(
            "training.server: expected sgd without momentum with personal mixed_intervals: it would go on "
            "moving layers that are not summed"
        )
    try:
        tensors = own_tensors(names, personal.local_param)
    except ValueError as error:
        raise ValueError(f"training.personal.local_param: {error}") from error
    if personal.kind == "fedper" and len(tensors) == len(names):
        raise ValueError("training.personal.local_param: expected some tensors to be shared, got all of them")


def own_tensors(names: Sequence[str], beginnings: Sequence[str]) -> frozenset[str]:
    """Tensors whose name is one of these, or begins with one of these and a dot; ``last`` and ``intercept``.

    Raises ValueError where one of them is no tensor's.
    """
    owner = names[-1].rpartition(".")[0] if names else ""
    found: set[str] = set()
    for beginning in beginnings:
        if beginning == LAST:
            matching = {name for name in names if name.rpartition(".")[0] == owner}
        elif beginning == INTERCEPT:
            matching = {name for name in names[-1:] if name.rpartition(".")[2] == "bias"}
        else:
            matching = {name for name in names if name == beginning or name.startswith(f"{beginning}.")}
        if not matching:
            known = ", ".join(names[:20])
            raise ValueError(
                f"expected {LAST}, {INTERCEPT} or beginnings of {known}, got {beginning!r}, "
                "which no tensor has"
            )
        found |= matching
    return frozenset(found)

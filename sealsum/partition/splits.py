"""Which simulated silo holds which record: one function a kind of split, deterministic by a public seed.

Every record is at exactly one silo. Seeds reach no key and no noise: splits are of public or made-up records,
and real silos hold what they hold. Knows no file and no picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError

SplitKind: TypeAlias = Literal[
    "iid",
    "shards",
    "dirichlet",
    "quantity",
    "feature_shift",
    "same_label_feature_shift",
    "concept_shift",
    "natural",
]
KINDS: Final[tuple[SplitKind, ...]] = get_args(SplitKind)
TRIES: Final = 1000
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Table:
    """What splits go by: each record's class, and what orders records for the shifts of features."""

    labels: NDArray[np.intp] = field(repr=False)
    """intp[n], from 0."""
    classes: int
    order: NDArray[np.float64] | None = field(default=None, repr=False)
    """float64[n]: a column, or the first principal component; for both shifts of features."""
    groups: NDArray[np.intp] | None = field(default=None, repr=False)
    """intp[n], from 0: whose record it is by its own account; for ``natural``."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Asked:
    """A kind of split and its settings."""

    kind: SplitKind
    silos: int
    seed: int = 0
    alpha: float = 0.5
    """Of ``dirichlet`` and ``quantity``: the smaller, the more skewed."""
    shards: int = 2
    """Of ``shards``: how many each silo gets, of records sorted by label."""
    least: int = 1
    """Records of every silo."""


@dataclass(frozen=True)
class Partition:
    """Each silo's records, and what it calls their classes."""

    asked: Asked
    rows: tuple[Rows, ...] = field(repr=False)
    """Ascending record numbers, one array a silo."""
    turned: tuple[int, ...] = ()
    """By how many classes a silo's labels are turned: class c is called (c + turn) mod C. Empty: none are."""

    @property
    def sizes(self) -> list[int]:
        """Records of each silo."""
        return [len(rows) for rows in self.rows]

    def labels(self, table: Table, silo: int) -> NDArray[np.intp]:
        """What silo number ``silo`` calls its records' classes, intp[n_k]."""
        labels = table.labels[self.rows[silo]]
        return (labels + self.turned[silo]) % table.classes if self.turned else labels

    def counts(self, table: Table) -> NDArray[np.intp]:
        """Records by silo and class, intp[silos, classes]."""
        return np.array(
            [np.bincount(self.labels(table, silo), minlength=table.classes) for silo in range(len(self.rows))]
        )


def partition(table: Table, asked: Asked) -> Partition:
    """Split the table.

    Raises:
        ConfigurationError: too few records for so many silos; a silo would have fewer than ``least``,
        whatever is
            drawn; the split needs an order or groups that the table does not have; or settings out of range.
    """
    if asked.silos < 2:
        raise ConfigurationError(f"silos: expected 2 or more, got {asked.silos}")
    needed = asked.silos * max(1, asked.least)
    if asked.least < 1 or len(table) < needed:
        raise ConfigurationError(
            f"records: expected {needed} or more for {asked.silos} silos of at least {asked.least}, got "
            f"{len(table)}; ask for fewer silos or a smaller least"
        )
    if not asked.alpha > 0:
        raise ConfigurationError(f"alpha: expected more than 0, got {asked.alpha:g}")
    owner = _SPLITS[asked.kind](table, asked, np.random.default_rng(asked.seed))
    rows = tuple(np.flatnonzero(owner == silo) for silo in range(asked.silos))
    short = [silo + 1 for silo, held in enumerate(rows) if len(held) < asked.least]
    if short:
        raise ConfigurationError(
            f"{asked.kind}: expected {asked.least} records or more at every silo, got fewer at silo "
            f"{', '.join(map(str, short))}; another seed, fewer silos or a smaller least may do"
        )
    turned = tuple(silo % table.classes for silo in range(asked.silos))
    return Partition(asked, rows, turned if asked.kind == "concept_shift" else ())


def principal_component(features: NDArray[np.floating]) -> NDArray[np.float64]:
    """Where each record lies along the direction in which records differ most, float64[n]."""
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    along: NDArray[np.float64] = centred @ directions[:, -1]
    # Either sign is a principal direction: take the one whose largest part is positive, on every machine.
    return along if directions[np.argmax(np.abs(directions[:, -1])), -1] > 0 else -along


def _iid(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    return _cut(random.permutation(len(table)), _even(len(table), asked.silos))


def _shards(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    """Sorted by label and cut into silos × shards pieces, dealt at random (McMahan et al. 2017)."""
    pieces = asked.silos * asked.shards
    if asked.shards < 1 or pieces > len(table):
        raise ConfigurationError(f"shards: expected 1 to {len(table) // asked.silos}, got {asked.shards}")
    shuffled = random.permutation(len(table))
    by_label = shuffled[np.argsort(table.labels[shuffled], kind="stable")]
    piece = _cut(by_label, _even(len(table), pieces))
    dealt = random.permutation(np.repeat(np.arange(asked.silos), asked.shards))
    return dealt[piece]


def _dirichlet(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    """Each class is divided among silos in shares that are drawn from Dirichlet(α) (Hsu et al. 2019)."""

    def drawn() -> NDArray[np.intp]:
        owner = np.empty(len(table), dtype=np.intp)
        for label in range(table.classes):
            rows = random.permutation(np.flatnonzero(table.labels == label))
            shares = random.dirichlet(np.full(asked.silos, asked.alpha))
            owner[rows] = _cut(np.arange(len(rows)), _apportioned(shares, len(rows)))
        return owner

    return _until_enough(drawn, asked)


def _quantity(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    """Records at random, in numbers that are drawn from Dirichlet(α)."""

    def drawn() -> NDArray[np.intp]:
        shares = random.dirichlet(np.full(asked.silos, asked.alpha))
        return _cut(random.permutation(len(table)), _apportioned(shares, len(table)))

    return _until_enough(drawn, asked)


def _feature_shift(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    """Even parts along the order: silos see other features, and other labels as far as these go with them."""
    return _cut(_ordered(table, random), _even(len(table), asked.silos))


def _same_label_feature_shift(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    """The same within each class: labels are spread alike, yet a class looks different at each silo."""
    ordered, owner = _ordered(table, random), np.empty(len(table), dtype=np.intp)
    for label in range(table.classes):
        rows = ordered[table.labels[ordered] == label]
        owner[rows] = _cut(np.arange(len(rows)), _even(len(rows), asked.silos))
    return owner


def _natural(table: Table, asked: Asked, random: np.random.Generator) -> NDArray[np.intp]:
    """Whose a record is says a column; more groups than silos are joined, the largest to the emptiest
    silo."""
    if table.groups is None:
        raise ConfigurationError(
            "natural: expected the column that says whose each record is, got none; name it with --by"
        )
    sizes = np.bincount(table.groups)
    if len(sizes) < asked.silos:
        raise ConfigurationError(
            f"natural: expected {asked.silos} groups or more for {asked.silos} silos, got {len(sizes)}"
        )
    if len(sizes) == asked.silos:
        return table.groups
    held, joined = np.zeros(asked.silos, dtype=np.intp), np.empty(len(sizes), dtype=np.intp)
    for group in np.argsort(-sizes, kind="stable"):
        joined[group] = held.argmin()
        held[joined[group]] += sizes[group]
    return joined[table.groups]


_SPLITS: Final[Mapping[SplitKind, Callable[[Table, Asked, np.random.Generator], NDArray[np.intp]]]] = (
    MappingProxyType(
        {
            "iid": _iid,
            "shards": _shards,
            "dirichlet": _dirichlet,
            "quantity": _quantity,
            "feature_shift": _feature_shift,
            "same_label_feature_shift": _same_label_feature_shift,
            # Records as in iid; what differs is what silos call them.
            "concept_shift": _iid,
            "natural": _natural,
        }
    )
)


def _ordered(table: Table, random: np.random.Generator) -> Rows:
    if table.order is None or not np.isfinite(table.order).all():
        raise ConfigurationError("feature shift: expected a number for each record to order them by")
    shuffled = random.permutation(len(table))
    return shuffled[np.argsort(table.order[shuffled], kind="stable")]


def _even(count: int, parts: int) -> NDArray[np.intp]:
    """Sizes that differ by at most 1."""
    return np.bincount(np.arange(count) * parts // max(count, 1), minlength=parts)


def _apportioned(shares: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Whole numbers by those shares that add up to ``count``: cut points are rounded, not sizes."""
    ends = np.rint(np.cumsum(shares)[:-1] * count).astype(np.intp)
    return np.diff(np.concatenate([[0], ends, [count]]))


def _cut(rows: Rows, sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The number of the part that each of ``rows`` falls into, by row: intp[n]."""
    owner = np.empty(len(rows), dtype=np.intp)
    owner[rows] = np.repeat(np.arange(len(sizes)), sizes)
    return owner


def _until_enough(drawn: Callable[[], NDArray[np.intp]], asked: Asked) -> NDArray[np.intp]:
    """Draw again until every silo has enough; the seed fixes which draw that is."""
    for _ in range(TRIES):
        owner = drawn()
        if np.bincount(owner, minlength=asked.silos).min() >= asked.least:
            return owner
    raise ConfigurationError(
        f"{asked.kind}: none of {TRIES} draws gave every silo {asked.least} records; "
        "raise alpha, or ask for fewer silos or a smaller least"
    )

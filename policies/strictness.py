"""Which of two values of a field is the stricter one: one order a field, in one table.

A child threat model (``metadata.extends``) may only tighten; ``sealsum policy diff`` names each change.
Knows no file and no wire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from policies.fields import NONE, PRESENT, effective, spoken_value
from policies.schema import ThreatModel

Verdict = Literal["same", "tightened", "loosened", "changed"]


@dataclass(frozen=True)
class Change:
    """One field in which two threat models differ."""

    path: str
    before: Any
    after: Any
    verdict: Verdict
    allowed: str
    """What a child may write here, given ``before``."""


class Order(ABC):
    """How the values of one field compare."""

    @abstractmethod
    def verdict(self, before: Any, after: Any) -> Verdict:
        """What going from one value to another is; the two differ."""

    @abstractmethod
    def allowed(self, before: Any) -> str:
        """Which values are no looser, in words."""


@dataclass(frozen=True)
class Higher(Order):
    """More is stricter."""

    def verdict(self, before: Any, after: Any) -> Verdict:
        return "tightened" if after > before else "loosened"

    def allowed(self, before: Any) -> str:
        return f"at least {spoken_value(before)}"


@dataclass(frozen=True)
class Lower(Order):
    """Less is stricter."""

    def verdict(self, before: Any, after: Any) -> Verdict:
        return "tightened" if after < before else "loosened"

    def allowed(self, before: Any) -> str:
        return f"at most {spoken_value(before)}"


@dataclass(frozen=True)
class Ranked(Order):
    """Words from the loosest to the strictest."""

    words: tuple[Any, ...]

    def verdict(self, before: Any, after: Any) -> Verdict:
        return "tightened" if self.words.index(after) > self.words.index(before) else "loosened"

    def allowed(self, before: Any) -> str:
        return " or ".join(spoken_value(word) for word in self.words[self.words.index(before) :])


@dataclass(frozen=True)
class Fewer(Order):
    """A list in which each name is a permission; ``any`` holds every name."""

    def verdict(self, before: Any, after: Any) -> Verdict:
        if set(after) == set(before):
            return "changed"
        within = "any" in before or set(after) < set(before)
        return "tightened" if within else "loosened"

    def allowed(self, before: Any) -> str:
        return "any list" if "any" in before else f"none but [{', '.join(before)}]"


@dataclass(frozen=True)
class Fixed(Order):
    """No value is stricter than another: a child keeps its parent's."""

    why: str

    def verdict(self, before: Any, after: Any) -> Verdict:
        return "loosened"

    def allowed(self, before: Any) -> str:
        return f"{spoken_value(before)} ({self.why})"


@dataclass(frozen=True)
class Free(Order):
    """Says nothing of strictness, or is judged by other fields."""

    def verdict(self, before: Any, after: Any) -> Verdict:
        return "changed"

    def allowed(self, before: Any) -> str:
        return "anything"


_MORE, _LESS, _NAMES, _FREE = Higher(), Lower(), Fewer(), Free()
_YES = Ranked((False, True))

STRICTNESS: Mapping[str, Order] = {
    "apiVersion": Fixed("one reading of the file"),
    "kind": Fixed("one reading of the file"),
    "metadata.name": _FREE,
    "metadata.version": _FREE,
    "metadata.extends": _FREE,
    "mode": Ranked(("audit", "enforce")),
    "data_class": Ranked(("synthetic", "financial", "patient")),
    "assume.aggregator.behaviour": Ranked(("trusted", "honest_but_curious", "malicious")),
    "assume.aggregator.colludes_with_silos": _MORE,
    "assume.share_servers": Fixed("it goes with the scheme"),
    "assume.share_servers.count": _MORE,
    "assume.share_servers.max_colluding": _MORE,
    "assume.share_servers.distinct_operators": _YES,
    "assume.silos.max_colluding": _MORE,
    "assume.silos.max_poisoning": _MORE,
    "assume.silos.distinct_legal_entities": _YES,
    "assume.recipient.kind": Ranked(("silos", "external", "public")),
    "assume.recipient.access": Ranked(("black_box", "white_box")),
    "assume.network.tls_inspection": _YES,
    "assume.out_of_scope": _NAMES,
    "require.secagg.scheme": Fixed("each scheme withstands others"),
    "require.dp": Ranked((NONE, PRESENT)),
    "require.dp.model": Ranked(("central", "distributed", "local")),
    "require.dp.unit": Ranked(("record", "patient")),
    "require.dp.max_records_per_unit": _LESS,
    "require.dp.adjacency": Fixed("ε of another neighbour is another ε"),
    "require.dp.sampling": Fixed("ε is proven for one way of sampling"),
    "require.dp.accountant": Fixed("ε of another accountant is another ε"),
    "require.dp.secure_rng": _YES,
    "require.validity": Ranked(("none", "range", "l2_bound")),
    "require.approvals.n": _MORE,
    "require.approvals.roles": _NAMES,
    "require.approvals.automatic": Ranked(("allowed", "refused")),
    "require.attack_suite": Ranked(("none", "quick", "full")),
    "require.attack_suite_days": _LESS,
    "limits.min_silos_open": _MORE,
    "limits.max_dropouts": _LESS,
    "limits.max_weight_share": _LESS,
    "limits.epsilon.round": _LESS,
    "limits.epsilon.job": _LESS,
    "limits.epsilon.lifetime": _LESS,
    "limits.epsilon_fallback": _FREE,
    "limits.epsilon_fallback.round": _LESS,
    "limits.epsilon_fallback.job": _LESS,
    "limits.epsilon_fallback.lifetime": _LESS,
    "limits.delta_max": _LESS,
    "limits.clip_l2_max": _LESS,
    "limits.update_norm_max": _LESS,
    "limits.min_records": _MORE,
    "limits.upload_bytes_max": _LESS,
    "limits.rounds_max": _LESS,
    "allow.algorithms": _NAMES,
    "allow.architectures": _NAMES,
    "release.metrics.names": _NAMES,
    "release.metrics.dp": Ranked(("none", "charged", "withheld")),
    "release.model.to": Ranked(("researchers", "silos")),
    "release.model.when": Ranked(("every_round", "job_end")),
    "evidence.witnesses_min": _MORE,
    "evidence.sinks_min": _MORE,
    "evidence.fail_closed": _YES,
    "retention.evidence_days": _MORE,
}
"""Path → order, for every field of the schema. ``epsilon_fallback`` is judged by its three caps in force."""


def changes(before: ThreatModel, after: ThreatModel) -> Iterator[Change]:
    """Field by field, by the values in force; a group that appears or goes counts once, as itself."""
    old, new = effective(before), effective(after)
    for path, order in STRICTNESS.items():
        if path not in old or path not in new or old[path] == new[path]:
            continue
        yield Change(
            path, old[path], new[path], order.verdict(old[path], new[path]), order.allowed(old[path])
        )

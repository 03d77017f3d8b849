"""From threat to lock, for one threat model: what each of its locks does against each threat, and why.

Nothing here knows a profile. A cell of the secure sum comes from the loader's own rules: the threat is
supposed on top of the model, and a rule that then refuses says what the lock does not withstand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from policies.assumption import assumption_of, largest_witnessed
from policies.findings import Finding
from policies.rules_assumed import joint_key_little_flooded, one_key_at_all_silos, threshold_reachable
from policies.rules_loader import (
    collusion_below_all_servers,
    minimum_above_collusion,
    one_entity_is_one_colluder,
    one_operator_is_one_colluder,
    open_threats_are_named,
)
from policies.schema import ThreatModel
from policies.sentence import counted
from privacy.plan import THRESHOLD_SCHEMES
from privacy.secagg.pairwise.terms import least_threshold

Effect = Literal["stops", "bounds", "does not", "not asked"]
LOCKS = ("noise", "secure sum", "checks on shares", "logs and people")


@dataclass(frozen=True)
class Cell:
    """What one lock does against one threat."""

    effect: Effect
    because: str


@dataclass(frozen=True)
class Row:
    """One threat, and every lock's answer to it."""

    threat: str
    key: str
    cells: Mapping[str, Cell]

    @property
    def answered(self) -> bool:
        """Whether any lock stops or bounds it."""
        return any(cell.effect in ("stops", "bounds") for cell in self.cells.values())


_NOT_ASKED = Cell("not asked", "this lock is about something else")
_SECURE_SUM = (
    collusion_below_all_servers,
    one_operator_is_one_colluder,
    one_entity_is_one_colluder,
    minimum_above_collusion,
    one_key_at_all_silos,
    joint_key_little_flooded,
    threshold_reachable,
)


def threat_table(model: ThreatModel) -> tuple[Row, ...]:
    """Every threat of the design against every lock of this threat model."""
    return tuple(_rows(model))


def _rows(model: ThreatModel) -> Iterator[Row]:
    curious = {"behaviour": "honest_but_curious", "colludes_with_silos": 0}
    malicious = {"behaviour": "malicious", "colludes_with_silos": 0}
    alone: dict[str, Any] = {"assume.silos.max_colluding": 0}
    assumed = model.spec.assume
    behaviour = assumed.aggregator.behaviour
    curious_or_worse = "malicious" if behaviour == "malicious" else "honest_but_curious"
    for threat, key, supposed in (
        ("an aggregator that looks", "curious_aggregator", {"assume.aggregator": curious, **alone}),
        (
            "an aggregator that lies and tampers",
            "malicious_aggregator",
            {"assume.aggregator": malicious, **alone},
        ),
        (
            "the aggregator with one silo's help",
            "aggregator_with_silo",
            {"assume.aggregator": {"behaviour": curious_or_worse, "colludes_with_silos": 1}, **alone},
        ),
        (
            "two silos that pool what they see",
            "silos_pool",
            {"assume.aggregator": curious, "assume.silos.max_colluding": 2},
        ),
    ):
        yield _row(threat, key, noise=_noise(model, single=True), secure_sum=_sum_withstands(model, supposed))
    yield _row(
        "all share servers together",
        "all_share_servers",
        noise=_noise(model, single=True),
        secure_sum=_all_servers(model),
    )
    yield _row(
        "testing the model for who was in the data",
        "membership",
        noise=_noise(model, single=False),
        secure_sum=Cell("does not", "it hides updates, and says nothing of their sum"),
    )
    yield _row(
        "subtracting two sums of one round",
        "differencing",
        noise=_noise(model, single=False),
        secure_sum=Cell("stops", "a round is opened once; a second opening is refused (second_opening)"),
        logs_and_people=Cell("bounds", "every opening is in a witnessed log"),
    )
    yield _row(
        "subtracting the sums of two rounds from one model",
        "repeated_round",
        noise=_noise(model, single=False),
        secure_sum=Cell("does not", "each round has a sum of its own, and cohorts may differ by one silo"),
        logs_and_people=Cell("bounds", "each round is begun once, charged and logged at every silo"),
    )
    yield _row(
        "a sum's decryption that leaves the silos",
        "decryption_outside",
        secure_sum=_sum_withstands(model, {"assume.recipient.kind": "external"}),
    )
    yield _row(
        "a server that shows silos different sets or histories",
        "split_view",
        secure_sum=_sum_withstands(model, {"assume.aggregator": malicious, **alone}),
        logs_and_people=_witnessed(model),
    )
    yield _row(
        "a silo that makes up its update",
        "poisoning",
        noise=Cell("does not", "the silo clips itself: one that tampers does not"),
        secure_sum=Cell("does not", "a hidden update cannot be looked at"),
        checks_on_shares=_poisoning(model),
    )
    yield _row(
        "a proxy that opens TLS",
        "tls_proxy",
        noise=_noise(model, single=False),
        secure_sum=Cell("stops", "updates and seeds are sealed, and every message is signed"),
    )
    yield _row(
        "a job that a silo would not want",
        "unwanted_job",
        logs_and_people=_approvals(model),
    )
    yield _row(
        "whoever controls a silo's machine",
        "silo_host",
        noise=Cell("does not", "her own records lie there in the open"),
        secure_sum=Cell("does not", "her own records lie there in the open"),
    )


def _row(threat: str, key: str, **cells: Cell) -> Row:
    named = {lock: cells.get(lock.replace(" ", "_"), _NOT_ASKED) for lock in LOCKS}
    return Row(threat, key, named)


def _noise(model: ThreatModel, single: bool) -> Cell:
    """``single``: against whoever sees one silo's update; else against whoever sees sums and models."""
    dp, limits = model.spec.require.dp, model.spec.limits
    if dp is None:
        return Cell("does not", "require.dp is none")
    if dp.model == "distributed" and single:
        return Cell("bounds", f"ε_fallback ≤ {limits.of_fallback.job:g} a job, by the silo's own noise")
    return Cell("bounds", f"ε ≤ {limits.epsilon.job:g} a job, {limits.epsilon.lifetime:g} for good")


def _sum_withstands(model: ThreatModel, supposed: Mapping[str, Any]) -> Cell:
    against = supposing(model, supposed)
    refusals: list[Finding] = [finding for rule in _SECURE_SUM for finding in rule(against)]
    if refusals:
        return Cell("does not", f"{refusals[0].sentence} ({refusals[0].rule})")
    scheme, limits = model.spec.require.secagg.scheme, model.spec.limits
    silos = limits.min_silos_open + limits.max_dropouts
    held, needed = (least_threshold(silos, assumption_of(one.spec)) for one in (model, against))
    if scheme in THRESHOLD_SCHEMES and held < needed:
        # Plans take the threshold from what the model itself assumes, not from what is supposed here.
        return Cell("does not", f"{held} of {silos} silos open masks, and {needed} would have to (threshold)")
    return Cell("stops", f"{scheme}, of at least {limits.min_silos_open} {counted(model)}")


def _all_servers(model: ThreatModel) -> Cell:
    servers = model.spec.assume.share_servers
    if servers is None:
        return Cell("not asked", f"{model.spec.require.secagg.scheme} has no share servers")
    return _sum_withstands(model, {"assume.share_servers.max_colluding": servers.count})


def _poisoning(model: ThreatModel) -> Cell:
    silos = max(model.spec.assume.silos.max_poisoning, 1)
    supposed = {"assume.out_of_scope": ("silo_host_compromise",), "assume.silos.max_poisoning": silos}
    bound = f"an update longer than {model.spec.limits.update_norm_max:g} is left out by name"
    refusals = list(open_threats_are_named(supposing(model, supposed)))
    if not refusals:
        return Cell("bounds", bound)
    honest = {**supposed, "assume.share_servers.max_colluding": 0}
    if model.spec.assume.share_servers and not any(open_threats_are_named(supposing(model, honest))):
        return Cell("bounds", f"{bound}, unless a share server helps the silo (out_of_scope)")
    return Cell("does not", f"{refusals[0].sentence} ({refusals[0].rule})")


def _witnessed(model: ThreatModel) -> Cell:
    limits, most = model.spec.limits, largest_witnessed(model.spec)
    because = (
        f"{model.spec.witnesses_needed} silos cosign one history; of up to {most} silos, no two can pass"
    )
    return Cell("stops" if limits.min_silos_open + limits.max_dropouts <= most else "bounds", because)


def _approvals(model: ThreatModel) -> Cell:
    approvals = model.spec.require.approvals
    if approvals.automatic == "allowed":
        return Cell("bounds", "a person, or a silo's written rule, has to say yes")
    people = "1 person" if approvals.n == 1 else f"{approvals.n} people"
    return Cell("stops", f"{people} at the silo must sign exactly this job")


def supposing(model: ThreatModel, changes: Mapping[str, Any]) -> ThreatModel:
    """The model with other values at some paths below ``spec``, not judged."""
    spec: BaseModel = model.spec
    for path, value in changes.items():
        spec = _changed(spec, path.split("."), value)
    return model.model_copy(update={"spec": spec})


def _changed(node: BaseModel, path: list[str], value: Any) -> BaseModel:
    name, *rest = path
    held = getattr(node, name)
    if rest:
        return node.model_copy(update={name: _changed(held, rest, value)})
    if isinstance(held, BaseModel) and isinstance(value, dict):
        return node.model_copy(update={name: held.model_copy(update=value)})
    return node.model_copy(update={name: value})

"""A threat model in sentences: what it protects against, what it does not, and what each sentence rests on.

Derived from the model's fields alone, so that a changed line changes the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policies.assumption import colluding_silos
from policies.explain_evidence import agreed_and_proven, neither_agreed_nor_proven
from policies.explain_scheme import parties_together, sum_only
from policies.schema import DpRequirement, ThreatModel
from policies.sentence import Sentence, spoken


@dataclass(frozen=True)
class Explanation:
    """Both halves of the truth about a threat model."""

    name: str
    protects: tuple[Sentence, ...]
    does_not: tuple[Sentence, ...]

    def __str__(self) -> str:
        return "\n\n".join(
            [
                f"Threat model {self.name}",
                _paragraph("What it protects", self.protects),
                _paragraph("What it does not protect against", self.does_not),
            ]
        )


def explain(model: ThreatModel) -> Explanation:
    """Put a threat model into sentences."""
    metadata = model.metadata
    return Explanation(
        f"{metadata.name} v{metadata.version}",
        (
            *_lineage(model),
            *sum_only(model),
            *_checked(model),
            *_noise(model),
            *_plans(model),
            *_release(model),
            *agreed_and_proven(model),
        ),
        (
            *_mode(model),
            *parties_together(model),
            *_who_takes_part(model),
            *_within_the_bound(model),
            *_without_noise(model),
            *neither_agreed_nor_proven(model),
            *_open_threats(model),
        ),
    )


def _lineage(model: ThreatModel) -> Iterator[Sentence]:
    if model.metadata.extends is not None:
        yield Sentence(
            f"In no field is it looser than its parent, {model.metadata.extends}.",
            "every party that judges by it has compared the two, field by field",
        )


def _checked(model: ThreatModel) -> Iterator[Sentence]:
    spec = model.spec
    if spec.require.validity != "none":
        yield Sentence(
            f"A silo whose update is longer than {spec.limits.update_norm_max:g}, or weighs more than one "
            "silo, is left out of the sum by name, and nobody sees its update.",
            "silos prove norm and weight on shares; all share servers check honestly (one that colludes with "
            "the silo lets it pass)",
        )


def _records(dp: DpRequirement) -> str:
    most = dp.max_records_per_unit
    return "1 record" if most == 1 else f"at most {most} records"


def _noise(model: ThreatModel) -> Iterator[Sentence]:
    dp, limits = model.spec.require.dp, model.spec.limits
    if dp is None:
        return
    mechanism = (
        f"({dp.model} DP-SGD, {dp.sampling} sampling, {spoken(dp.adjacency)} adjacency, {dp.accountant} "
        f"accounting, {_records(dp)} a {dp.unit})"
    )
    rests_on = f"each silo's agent clips and adds noise as written {mechanism}"
    if dp.model == "distributed":
        honest = limits.min_silos_open - colluding_silos(model.spec)
        rests_on = (
            f"each silo's agent clips and adds all of the noise, or its share, as written {mechanism}; with "
            f"shares, {honest} honest silos' noise in every sum, and a secure sum that hides single updates"
        )
    yield Sentence(
        f"Whoever holds all models of one job ({spoken(model.spec.assume.recipient.access)}), and every "
        f"server's memory, learns at most ε = {limits.epsilon.job:g} (δ ≤ {limits.delta_max:g}) about any "
        f"single {dp.unit}; over all jobs on a data set at most ε = {limits.epsilon.lifetime:g}, the jobs' δ "
        "adding up.",
        rests_on,
    )
    if dp.model == "distributed":
        yield _without_the_sum(model)


def _without_the_sum(model: ThreatModel) -> Sentence:
    limits, fallback = model.spec.limits, model.spec.limits.epsilon_fallback
    if fallback is None:
        return Sentence(
            "Should the secure sum fail, the same ε holds.",
            "epsilon_fallback is left out: only plans in which every silo adds all of the noise pass",
        )
    return Sentence(
        f"Should the secure sum fail, whoever sees single updates of one job learns at most ε = "
        f"{limits.of_fallback.job:g}; over all jobs at most ε = {limits.of_fallback.lifetime:g}.",
        "epsilon_fallback caps what a silo's own noise gives by itself",
    )


def _plans(model: ThreatModel) -> Iterator[Sentence]:
    allow, limits = model.spec.allow, model.spec.limits
    architectures = "any architecture"
    if "any" not in allow.architectures:
        listed = len(allow.architectures)
        architectures = (
            f"{listed} listed architectures" if listed else "no architecture, as none is listed yet"
        )
    yield Sentence(
        f"No silo outweighs the others: an honest one holds at most {limits.max_weight_share:.0%} of a sum's "
        "weight.",
        "plans weigh silos alike, and each silo and server checks that"
        if limits.max_weight_share < 1
        else "max_weight_share is 1, and one silo may be nearly all of a sum",
    )
    yield Sentence(
        f"No plan looser than agreed is trained: only {', '.join(allow.algorithms) or 'nothing'}, on "
        f"{architectures}, for at most {limits.rounds_max} rounds of {_size(limits.upload_bytes_max)}, "
        f"where there are {limits.min_records} records or more.",
        f"every silo{' and every share server' if model.spec.assume.share_servers else ''} judges every plan "
        "itself, against the charter that the officers signed",
    )


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count} bytes"


def _release(model: ThreatModel) -> Iterator[Sentence]:
    release = model.spec.release
    metrics = ", ".join(release.metrics.names)
    yield Sentence(
        f"Of metrics only {metrics} leave a silo, noised and charged like a round of training."
        if metrics
        else "No metrics leave a silo.",
        f"release.metrics.dp is {release.metrics.dp}",
    )
    readers = (
        "enrolled researchers"
        if release.model.to == "researchers"
        else "researchers of the silos' institutions"
    )
    when = "when a job has ended" if release.model.when == "job_end" else "after each round"
    yield Sentence(
        f"Beside the silos, only {readers} read models, {when}.",
        "the aggregator keeps to it: it is not enforced against the aggregator itself",
    )
    asked = model.spec.require
    if asked.attack_suite != "none":
        yield Sentence(
            f"Before that, a silo or a researcher who did not ask for the job has tried the attacks of suite "
            f"{asked.attack_suite} on it, at most {asked.attack_suite_days} days ago, and all came out as "
            "they must.",
            "require.attack_suite; whoever signs the results has run them, and the aggregator keeps to them",
        )


def _mode(model: ThreatModel) -> Iterator[Sentence]:
    if model.spec.mode == "audit":
        yield Sentence(
            "Plans that break a limit: they are recorded and pass.", "mode is audit, for synthetic data only"
        )


def _within_the_bound(model: ThreatModel) -> Iterator[Sentence]:
    if model.spec.require.validity != "none":
        yield Sentence(
            "A silo that shares a made-up update within the bound: it moves the model by that much, a round.",
            f"update_norm_max is {model.spec.limits.update_norm_max:g}; a bound leaves the direction open",
        )


def _who_takes_part(model: ThreatModel) -> Iterator[Sentence]:
    spec = model.spec
    if not spec.assume.silos.distinct_legal_entities:
        yield Sentence(
            "One institution learning about its own sites.",
            "distinct_legal_entities is false: cohorts count silos, not institutions",
        )
    yield Sentence(
        "Knowing who takes part: names of silos and the times of their rounds are in everybody's log.",
        "signed messages name their senders",
    )
    if spec.assume.network.tls_inspection:
        yield Sentence(
            "A proxy that opens TLS and reads the models.",
            "a model is public to the federation: it is checked by its digest, not sealed",
        )


def _without_noise(model: ThreatModel) -> Iterator[Sentence]:
    assume = model.spec.assume
    if model.spec.require.dp is None:
        yield Sentence(
            "Membership tests and reconstruction from the models, which are not noised.",
            f"dp is none; the recipient is {assume.recipient.kind}, the aggregator "
            f"{spoken(assume.aggregator.behaviour)}",
        )
        yield Sentence(
            "An aggregator that aborts a round after its sum was opened and repeats it without one silo: the "
            "difference of the two sums is that silo's update.",
            "each round opens once, but without noise two rounds from one model can be subtracted",
        )
        return
    yield Sentence(
        "What a model says about a group: that a treatment works is learnt from whoever took part.",
        f"differential privacy hides single {model.spec.require.dp.unit}s, not facts about many",
    )
    yield Sentence(
        "A silo that tampers with its own agent and adds no noise to its own patients' data.",
        "local DP rests on the silo that owns the data",
    )
    if model.spec.require.dp.model == "distributed":
        yield Sentence(
            f"More than {colluding_silos(model.spec)} silos that tell their noise or leave it out: others' "
            "patients then have a larger ε than the sum's, up to the fallback's.",
            "so many are assumed to collude, and nothing proves that a silo added its share",
        )


_OPEN = {
    "silo_host_compromise": "Whoever controls a silo's machine.",
    "silo_poisoning": "A silo that shares a made-up update: it moves the model as far as it likes.",
}


def _open_threats(model: ThreatModel) -> Iterator[Sentence]:
    for threat in model.spec.assume.out_of_scope:
        text = _OPEN[threat]
        if threat == "silo_poisoning" and model.spec.require.validity != "none":
            text = "A silo that shares a made-up update and has a share server's help: nothing bounds it."
        yield Sentence(text, f"out_of_scope names {threat}")


def _paragraph(title: str, sentences: tuple[Sentence, ...]) -> str:
    lines = [title]
    for sentence in sentences:
        lines += [f"  • {sentence.text}", f"    because: {sentence.rests_on}"]
    return "\n".join(lines)

"""A threat model in sentences: what it protects against, what it does not, and what each sentence rests on.

Derived from the model's fields alone, so that a changed line changes the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policies.schema import ThreatModel


@dataclass(frozen=True)
class Sentence:
    """One claim, and the assumption or mechanism without which it does not hold."""

    text: str
    rests_on: str


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
        (*_sum_only(model), *_noise(model), *_plans(model), *_release(model)),
        (*_mode(model), *_parties_together(model), *_without_noise(model), *_open_threats(model)),
    )


def _sum_only(model: ThreatModel) -> Iterator[Sentence]:
    spec = model.spec
    servers, aggregator = spec.assume.share_servers, spec.assume.aggregator
    operators = f", run by {servers.count} different operators," if servers.distinct_operators else ""
    yield Sentence(
        f"The {_spoken(aggregator.behaviour)} aggregator sees no silo's update, only the sum over at "
        f"least {spec.limits.min_silos_open} {_counted(model)}, once a round.",
        f"no more than {servers.max_colluding} of {servers.count} share servers{operators} collude (scheme "
        f"{spec.require.secagg.scheme})",
    )
    colluding = max(aggregator.colludes_with_silos, spec.assume.silos.max_colluding)
    if colluding:
        honest = spec.limits.min_silos_open - colluding
        who = "One silo that colludes" if colluding == 1 else f"{colluding} silos that collude"
        yield Sentence(
            f"{who}, with or without the aggregator, can take only their own part out of a sum: the others "
            f"stay a sum of at least {honest}.",
            f"no more than {colluding} collude; min_silos_open is {spec.limits.min_silos_open}",
        )
    yield Sentence(
        "The aggregator cannot compare two sums of a round: every share server releases one a round, and "
        f"never another; {spec.limits.max_dropouts} of the invited silos may be missing from it.",
        "at least one share server is honest",
    )
    if spec.assume.network.tls_inspection:
        yield Sentence(
            "A proxy that opens TLS can read no update and alter no message unnoticed.",
            "seeds are sealed to the share servers' keys and messages are signed with roster keys",
        )


def _noise(model: ThreatModel) -> Iterator[Sentence]:
    dp, limits = model.spec.require.dp, model.spec.limits
    if dp is None:
        return
    yield Sentence(
        f"Whoever holds all models of one job ({_spoken(model.spec.assume.recipient.access)}), and every "
        f"server's memory, learns at most ε = {limits.epsilon.job:g} (δ ≤ {limits.delta_max:g}) about any "
        f"single {dp.unit}; over all jobs on a data set at most ε = {limits.epsilon.lifetime:g}, the jobs' δ "
        "adding up.",
        f"each silo's agent clips and adds noise as written ({dp.model} DP-SGD, {dp.sampling} sampling, "
        f"{_spoken(dp.adjacency)} adjacency, {dp.accountant} accounting, {dp.max_records_per_unit} record a "
        f"{dp.unit})",
    )


def _plans(model: ThreatModel) -> Iterator[Sentence]:
    allow, limits = model.spec.allow, model.spec.limits
    architectures = "any architecture"
    if "any" not in allow.architectures:
        architectures = f"{len(allow.architectures) or 'no'} listed architectures"
    yield Sentence(
        f"No plan looser than agreed is trained: only {', '.join(allow.algorithms) or 'nothing'}, on "
        f"{architectures}, for at most {limits.rounds_max} rounds of {limits.upload_bytes_max} bytes, "
        f"where there are {limits.min_records} records or more.",
        "every silo and every share server judges every plan itself, against the officer's signed charter",
    )


def _release(model: ThreatModel) -> Iterator[Sentence]:
    release = model.spec.release
    yield Sentence("No metrics leave a silo.", f"release.metrics.dp is {release.metrics.dp}")
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


def _mode(model: ThreatModel) -> Iterator[Sentence]:
    if model.spec.mode == "audit":
        yield Sentence(
            "Plans that break a limit: they are recorded and pass.", "mode is audit, for synthetic data only"
        )


def _parties_together(model: ThreatModel) -> Iterator[Sentence]:
    spec = model.spec
    servers = spec.assume.share_servers
    yield Sentence(
        f"All {servers.count} share servers together: they can read every update.",
        "additive sharing needs one honest share server; what they then read still carries the silo's noise"
        if spec.require.dp
        else "additive sharing needs one honest share server",
    )
    if not servers.distinct_operators:
        yield Sentence(
            "The operator of the share servers, who can put the shares together.",
            "distinct_operators is false: the split guards against a stolen disk only",
        )
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
            f"{_spoken(assume.aggregator.behaviour)}",
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


_OPEN = {
    "silo_host_compromise": "Whoever controls a silo's machine.",
    "silo_poisoning": "A silo that shares a made-up update: it moves the model as far as it likes.",
}


def _open_threats(model: ThreatModel) -> Iterator[Sentence]:
    for threat in model.spec.assume.out_of_scope:
        yield Sentence(_OPEN[threat], f"out_of_scope names {threat}")


def _counted(model: ThreatModel) -> str:
    return "institutions" if model.spec.assume.silos.distinct_legal_entities else "silos"


def _spoken(word: str) -> str:
    return word.replace("_", " ")


def _paragraph(title: str, sentences: tuple[Sentence, ...]) -> str:
    lines = [title]
    for sentence in sentences:
        lines += [f"  • {sentence.text}", f"    because: {sentence.rests_on}"]
    return "\n".join(lines)

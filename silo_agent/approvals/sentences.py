"""What a data protection officer reads about a job before she decides: plain sentences, each with its number.

Says nothing that the case does not hold: what is signed, what the ledgers say, what the threat models ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from privacy.labels import AnyLabel, MaskLabel, SurvivalLabel
from privacy.plan import JobSpec
from privacy.query_terms import EvaluationTerms
from privacy.schema import DataSchema
from silo_agent.approvals.case import Case, Office, model_of
from silo_agent.approvals.cost import Cost, job_charge
from silo_agent.approvals.standing import Standing
from silo_agent.approvals.training_sentences import training_sentences

_NAMED_COLUMNS = 12
_RECIPIENTS = {
    "silos": "The model goes to the silos of the federation alone.",
    "researchers": "The model goes to the silos and to the federation's researchers.",
}
_OWN_PARTS = {
    "fedbn": "Normalisation layers stay at this silo, trained on its patients without noise; none is sent.",
    "fedper": "A part of it stays at this silo, trained on its patients without noise; it is not sent.",
    "mixed_intervals": "Layers are trained here for several rounds, and sent in the last of each.",
    "ditto": "Beside it a model of this silo's own is trained on its patients without noise; it is not sent.",
    "per_fedavg": "The model is trained to be good after one more step, which each silo takes for itself.",
}
_WHEN = {"job_end": "at the job's end", "every_round": "after every round"}
_COMPOSITION = "Across jobs, ε and δ are charged as the dataset's ledger says (sealsum silo budget)."


def sentences_of(case: Case, standing: Standing, office: Office) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Headings, and the sentences under each."""
    return (
        ("Who asks, and why", tuple(_asked(case, office))),
        ("What is computed, on which data", tuple(_computed(case.spec))),
        ("What protects the patients", tuple(_protection(case.spec))),
        ("What it costs", tuple(_costs(case))),
        ("Who gets what comes out", tuple(_released(office))),
        ("What is still asked for", tuple(_asked_of_people(case, standing, office))),
    )


def _asked(case: Case, office: Office) -> Iterator[str]:
    researcher, spec = case.request.researcher, case.spec
    yield f"{researcher.id} of {researcher.legal_entity} asks to run job {spec.job} in {spec.federation}."
    yield f"The stated purpose is: {spec.purpose}."
    dataset = office.settings.datasets.get(spec.dataset)
    if dataset is not None:
        basis = dataset.legal_basis.strip() or "none stated"
        yield f"The dataset {spec.dataset} is registered for this purpose; legal basis: {basis}."
    yield f"The job's digest is {case.digest}; a job with any other term has another one."


def _computed(spec: JobSpec) -> Iterator[str]:
    rounds = _count(spec.rounds, "round")
    model = model_of(spec)
    if spec.query is not None and not isinstance(spec.query, EvaluationTerms):
        yield f"Statistics are computed on {spec.dataset}, in {rounds}; no model is trained."
    else:
        verb = "evaluated" if isinstance(spec.query, EvaluationTerms) else "trained"
        yield (
            f"A model ({model.adapter}, {model.parameters} parameters, architecture "
            f"{model.architecture[:16]}…) is {verb} by {spec.training.algorithm} on {spec.dataset}, in "
            f"{rounds} of "
            f"{_count(spec.training.local_steps, 'step')}."
        )
    yield from training_sentences(spec)
    if spec.training.personal is not None:
        yield _OWN_PARTS[spec.training.personal.kind]
    if spec.training.holdout:
        yield (
            f"A share of {spec.training.holdout:g} of the patients, chosen by a digest of their id, is held "
            "out of it."
        )
    told = _told(spec)
    if told:
        more = f" and {len(told) - _NAMED_COLUMNS} more" if len(told) > _NAMED_COLUMNS else ""
        yield f"Numbers come out by name, with noise: {', '.join(told[:_NAMED_COLUMNS])}{more}."
    yield from _columns(spec.data)


def _told(spec: JobSpec) -> list[str]:
    """What is told of the data by name: statistics of them, metrics of a model on them."""
    if isinstance(spec.query, EvaluationTerms):
        return list(spec.query.names)
    if spec.query is not None:
        of = ((one.kind, getattr(one, "column", "")) for one in spec.query.statistics)
        return [f"{kind} of {column}" if column else kind for kind, column in of]
    metrics = None if spec.dp is None else spec.dp.metrics
    return [] if metrics is None else [f"{name} of each step's sample" for name in metrics.names]


def _columns(data: DataSchema) -> Iterator[str]:
    names = [feature.column for feature in data.features]
    shown = ", ".join(names[:_NAMED_COLUMNS])
    more = f" and {len(names) - _NAMED_COLUMNS} more" if len(names) > _NAMED_COLUMNS else ""
    predicted = _predicted(data.label)
    yield f"It reads {_count(len(names), 'column')}: {shown}{more}; it predicts {predicted}."
    yield f"Patients are told apart by {data.patient_id}; the schema's digest is {data.digest[:16]}…."


def _predicted(label: AnyLabel) -> str:
    if isinstance(label, MaskLabel):
        return f"a mask of {len(label.pixels)} pixels, {label.pixels[0]} to {label.pixels[-1]}"
    if isinstance(label, SurvivalLabel):
        return f"{label.time} until {label.event}"
    return label.column


def _protection(spec: JobSpec) -> Iterator[str]:
    dp = spec.dp
    if dp is None:
        yield "There is NO differential privacy: no ε limits what the model may tell of one patient."
    else:
        yield (
            f"In a step each {dp.unit} is drawn with probability {dp.sample_rate:g}, with at most "
            f"{_count(dp.records_per_unit, 'record')}, clipped together to length {dp.clip_l2:g}, and "
            f"covered by "
            f"Gaussian noise of {dp.noise_multiplier:g} times that length."
        )
        if dp.noise_shares is not None:
            yield (
                f"The noise is shared: this silo adds one part in {dp.noise_shares}. Should the secure "
                f"sum fail, "
                "only that part protects its patients; that is ε_fallback."
            )
    yield f"Updates are added up by {spec.scheme}: only the sum of at least {spec.min_silos} silos is opened."


def _costs(case: Case) -> Iterator[str]:
    terms = case.request.terms
    if terms.epsilon_job is None:
        yield "It has no ε, and the ledger cannot say what it costs."
    else:
        rounds = _count(terms.rounds_max, "round")
        yield f"The whole job costs ε {terms.epsilon_job:.3g} at δ {terms.delta:g}, in {rounds}."
        charge = job_charge(case.spec)
        if charge is not None and charge.fallback is not None:
            alone = charge.fallback_of(terms.rounds_max)
            yield f"Should the secure sum fail, it costs this silo's patients ε_fallback {alone:.3g} instead."
    for cost in case.costs:
        yield from _cost(cost)
    if case.costs:
        yield _COMPOSITION


def _cost(cost: Cost) -> Iterator[str]:
    yield (
        f"Of {cost.dataset}'s lifetime ε of {cost.lifetime:g}, {cost.before.lifetime:.3g} is spent; "
        f"after this "
        f"job {cost.after.lifetime:.3g} would be, which leaves {cost.left_after:.3g}. One round costs "
        f"{cost.after.round:.3g}."
    )
    if cost.refused_by:
        yield (
            f"The ledger of {cost.dataset} would let {cost.rounds_fit} of its {cost.rounds_left} rounds "
            f"begin, "
            f"and then refuse by {cost.refused_by}."
        )


def _released(office: Office) -> Iterator[str]:
    release = office.federation.model.spec.release.model
    yield f"{_RECIPIENTS[release.to][:-1]}, {_WHEN[release.when]}."
    named = office.federation.model.metadata
    yield f"That is what the federation's threat model says: {named.name}, version {named.version}."


def _asked_of_people(case: Case, standing: Standing, office: Office) -> Iterator[str]:
    needed = office.bench.requirement
    many = f"{needed.n} people in as many roles" if needed.n > 1 else "one person"
    yield f"The stricter of both threat models asks for {many} of: {', '.join(needed.roles)}."
    rules = "may" if needed.automatic else "may not"
    yield f"Rules of silo.yaml {rules} decide in their place."
    yield f"It stands: {standing.state}; {standing.why}."
    for finding in case.findings:
        yield (
            f"It would be refused anyway, by {finding.rule}: {finding.sentence} Expected {finding.expected}; "
            f"got {finding.got}."
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def as_text(parts: Sequence[tuple[str, Sequence[str]]]) -> str:
    """For a terminal or a printout."""
    return "\n\n".join(
        "\n".join([heading, *(f"  - {on_one_line(one)}" for one in said)]) for heading, said in parts
    )


def on_one_line(text: str) -> str:
    """Words of a researcher's that can neither move a terminal's cursor nor begin a sentence of ours."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)

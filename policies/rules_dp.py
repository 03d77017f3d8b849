"""What a threat model may say about differential privacy, given whom it assumes and whose data these are."""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.schema import ThreatModel


def no_dp_only_among_friends(model: ThreatModel) -> Iterator[Finding]:
    """Without noise a model memorises records. Real data without DP takes an institution that trusts itself.

    A malicious aggregator sends a model that imprints records and reads them out of a secure sum
    (Fowl et al. 2022, arXiv 2110.13057): the secure sum alone stops only a curious one.
    """
    spec = model.spec
    if spec.require.dp is not None:
        return
    if spec.assume.recipient.kind == "public":
        yield _without_dp(
            "public_model_without_dp", "whoever has the parameters can test who was in the data", model
        )
    if spec.data_class == "synthetic":
        return
    if spec.assume.recipient.kind == "external":
        yield _without_dp(
            "external_model_without_dp", "a model that leaves the institutions carries their records", model
        )
    if spec.assume.aggregator.behaviour == "malicious":
        yield _without_dp(
            "malicious_aggregator_without_dp",
            "a crafted model imprints records, and a secure sum alone does not hide them",
            model,
        )
    if spec.assume.network.tls_inspection:
        yield _without_dp("inspected_network_without_dp", "an inspecting proxy reads every model", model)


def _without_dp(rule: str, why: str, model: ThreatModel) -> Finding:
    assume = model.spec.assume
    return Finding(
        rule,
        f"without differential privacy {why}",
        "require.dp with its terms; or recipient silos, a non-malicious aggregator and no TLS inspection",
        f"dp: none, data_class {model.spec.data_class}, recipient {assume.recipient.kind}, aggregator "
        f"{assume.aggregator.behaviour}, tls_inspection {str(assume.network.tls_inspection).lower()}",
        "remove the line dp: none",
    )


def patients_are_the_unit(model: ThreatModel) -> Iterator[Finding]:
    """A patient with several records is protected once per record, that is, less than the claim reads."""
    dp = model.spec.require.dp
    if dp is not None and model.spec.data_class == "patient" and dp.unit != "patient":
        yield Finding(
            "unit_below_patient",
            "the promise is made to a patient, who may have more than one record",
            "require.dp.unit: patient",
            dp.unit,
            "write unit: patient; silos then refuse data in which a patient occurs twice",
        )


def delta_below_one_in_records(model: ThreatModel) -> Iterator[Finding]:
    """δ ≥ 1/N allows publishing a random record; design: at most 1/(10 N), here at the smallest N."""
    limits = model.spec.limits
    if model.spec.require.dp is not None and limits.delta_max * 10 * limits.min_records > 1:
        yield Finding(
            "delta_too_large",
            "a δ near one in N permits revealing somebody outright",
            f"limits.delta_max of at most {1 / (10 * limits.min_records):g} (1 / (10 · min_records))",
            f"{limits.delta_max:g}",
            "lower limits.delta_max",
        )


def epsilon_caps_nest(model: ThreatModel) -> Iterator[Finding]:
    """round ≤ job ≤ lifetime: a cap above the next one can never bind and misleads its reader."""
    caps = model.spec.limits.epsilon
    if not caps.round <= caps.job <= caps.lifetime:
        yield Finding(
            "epsilon_caps_disordered",
            "a round is part of a job and a job is part of a lifetime",
            "limits.epsilon: round ≤ job ≤ lifetime",
            f"round {caps.round:g}, job {caps.job:g}, lifetime {caps.lifetime:g}",
            "lower the inner caps or raise the outer ones",
        )


def fallback_caps_hold_epsilon(model: ThreatModel) -> Iterator[Finding]:
    """ε_fallback is never below ε: a smaller cap on it would be the cap on ε, under another name."""
    caps, fallback = model.spec.limits.epsilon, model.spec.limits.epsilon_fallback
    if fallback is None:
        return
    nested = fallback.round <= fallback.job <= fallback.lifetime
    pairs = ((fallback.round, caps.round), (fallback.job, caps.job), (fallback.lifetime, caps.lifetime))
    if not nested or any(cap < least for cap, least in pairs):
        yield Finding(
            "epsilon_fallback_caps",
            "a round is part of a job and a job of a lifetime, and without the secure sum ε is no smaller",
            f"limits.epsilon_fallback: round ≤ job ≤ lifetime, at least {caps.round:g}, {caps.job:g}, "
            f"{caps.lifetime:g} (limits.epsilon)",
            f"round {fallback.round:g}, job {fallback.job:g}, lifetime {fallback.lifetime:g}",
            "write all three caps, or leave limits.epsilon_fallback out: it is limits.epsilon then",
        )


def fallback_caps_are_used(model: ThreatModel) -> Iterator[Finding]:
    """With local noise each silo's own noise is all of it, so looser caps would only be misread."""
    dp = model.spec.require.dp
    if model.spec.limits.epsilon_fallback is not None and (dp is None or dp.model == "local"):
        yield Finding(
            "epsilon_fallback_idle",
            "without distributed noise nothing rests on the secure sum; an idle line deceives",
            "no limits.epsilon_fallback, or require.dp.model: distributed",
            "limits.epsilon_fallback " + ("without require.dp" if dp is None else "with model: local"),
            "remove limits.epsilon_fallback, or write model: distributed",
        )

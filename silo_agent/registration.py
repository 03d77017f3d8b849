"""What the hospital has registered a dataset for, and whether a job keeps to it: purpose, columns, unit.

A job names a dataset, never a path: where the data lie is in ``silo.yaml`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from policies.findings import Finding, PolicyRefusal
from policies.loader import LoadedPolicy
from privacy.canonical import digest_of
from privacy.errors import ConfigurationError
from privacy.ids import Digest
from privacy.plan import JobSpec
from silo_agent.settings import DatasetSettings, scopes_of

PERSONAL = ("patient", "financial")
"""Classes of data that may be processed on a legal basis only (GDPR Art. 6, 9)."""


def registered_for(
    datasets: Mapping[str, DatasetSettings], unit: Literal["patient", "record"], job: JobSpec
) -> DatasetSettings:
    """The dataset that a job names, if it is registered for this purpose, these columns and this unit.

    Raises:
        PolicyRefusal: it is not; with the first reason.
    """
    dataset = datasets.get(job.dataset)
    if dataset is None:
        raise _refusal(
            "dataset.unknown",
            "The silo has registered no dataset of that name.",
            job.dataset,
            "no such dataset",
            "leave this silo out of the job, or have its owner register the dataset in silo.yaml",
        )
    if job.purpose not in dataset.purpose:
        raise _refusal(
            "dataset.purpose",
            "The dataset is not registered for this purpose.",
            " or ".join(dataset.purpose),
            job.purpose,
            "state a registered purpose word for word, or have the data's owner register this one",
        )
    if job.data.patient_id != dataset.patient_id:
        raise _refusal(
            "dataset.patient_id",
            "The job counts other units than the silo's patients.",
            dataset.patient_id,
            job.data.patient_id,
            "name the column that tells the silo's patients apart",
        )
    if dataset.schemas and job.data.digest not in dataset.schemas:
        raise _refusal(
            "dataset.schema",
            "The dataset is not registered for this data schema.",
            " or ".join(dataset.schemas),
            job.data.digest,
            "use a registered schema, or have the data's owner read this one and register its digest",
        )
    if job.dp is not None and job.dp.unit != unit:
        raise _refusal(
            "dataset.unit",
            "The silo's ledger counts another privacy unit than the job protects.",
            f"dp.unit {unit}",
            job.dp.unit,
            "sign the job with the silo's unit",
        )
    shared = (datasets[name].budget for name in scopes_of(datasets, job.dataset))
    if job.dp is None and any(budget is not None for budget in shared):
        raise _refusal(
            "dataset.budget",
            "The dataset's patients have a privacy budget, and a job without DP would spend without measure.",
            "a job with dp",
            "dp: null",
            "train with dp, or have the data's owner remove the dataset's budget",
        )
    return dataset


def registration_digest(name: str, dataset: DatasetSettings) -> Digest:
    """Which data a decision was about: another file under the same name is another dataset."""
    return digest_of(
        "sealsum/registration/v1",
        {
            "adapter": dataset.adapter,
            "name": name,
            "patient_id": dataset.patient_id,
            **_source_of(dataset),
        },
    )


def _source_of(dataset: DatasetSettings) -> dict[str, str]:
    if dataset.sql is not None:
        return {"query": dataset.sql.query, "url": dataset.sql.url}
    if dataset.pictures is not None:
        told = dataset.pictures
        masks = {} if told.masks is None else {"masks": str(told.masks)}
        return {
            **masks,
            "path": str(dataset.file),
            "side": str(told.side),
            "table": str(told.table or ""),
            "values": told.values,
        }
    return {"path": str(dataset.file)}


def assert_legal_basis(datasets: Mapping[str, DatasetSettings], policies: Sequence[LoadedPolicy]) -> None:
    """Refuse to serve data about people without saying on which legal basis.

    Raises:
        ConfigurationError: a threat model's data_class is patient or financial, and a dataset states none.
    """
    classes = sorted({policy.model.spec.data_class for policy in policies} & set(PERSONAL))
    missing = [name for name, dataset in datasets.items() if not dataset.legal_basis.strip()]
    if classes and missing:
        raise ConfigurationError(
            f"datasets.{missing[0]}.legal_basis: expected the legal basis for processing it, because the "
            f"threat model's data_class is {classes[0]}; got nothing; write in silo.yaml, for instance, "
            '"GDPR Art. 9(2)(j), permit 2026-14"'
            + (f"; so for {', '.join(missing[1:])}" if len(missing) > 1 else "")
        )


def least_records(dataset: DatasetSettings, policies: Sequence[LoadedPolicy]) -> int:
    """The strictest minimum: of the threat models and of the dataset's owner."""
    return max(dataset.min_records, *(policy.model.spec.limits.min_records for policy in policies))


def _refusal(rule: str, sentence: str, expected: str, got: str, remedy: str) -> PolicyRefusal:
    return PolicyRefusal("offer", [Finding(rule, sentence, expected, got, remedy)])

"""``silo.yaml``: what the hospital decides for itself — data, purposes, budgets, its own threat model.

Nothing that a coordinator or a researcher sends can change a value read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator

from policies.audit_sinks.settings import WAIT_S, Sinks, WaitSeconds, sinks_or_default
from policies.health.settings import HealthSettings
from policies.settings_yaml import parse_settings
from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.ids import Name
from privacy.key_reference import KeyReference
from privacy.people import Person, PersonName
from privacy.secagg.threshold.interpreter import ThresholdHeSettings, anchored
from silo_agent.approvals.rules import ApprovalRule
from silo_agent.dataset_settings import Budget as Budget
from silo_agent.dataset_settings import DatasetSettings as DatasetSettings
from silo_agent.dataset_settings import place_of
from silo_agent.models.own import OwnAdapter
from silo_agent.worker_settings import WorkerSettings

_MAX_SETTINGS_BYTES = 1 << 20
_UNSHOWN: Final = ("proxy", "proxy_credentials", "url", "password")
"""Fields into which people write passwords, at whatever depth."""
_LOGIN: Final = re.compile(r"://[^/\s]*@")


class SiloSettings(Frozen):
    """A silo's whole configuration. Relative paths are relative to the file."""

    state_dir: Path = Path("/var/lib/sealsum")
    aggregator_url: Annotated[str, StringConstraints(pattern=r"^https://")]
    """Where the first charter is fetched; from then on the charter says where everybody is."""
    registrar_url: Annotated[str, StringConstraints(pattern=r"^https://[^\s/]+$")] | None = None
    """Where the certificate is renewed; what the invitation said if left out."""
    threat_model: Annotated[str, Field(min_length=1, max_length=1000)]
    """A shipped profile's name, or the path of a file: the silo's own, beside the federation's."""
    threat_model_parents: tuple[Path, ...] = ()
    """Files of the threat models that it extends, where they are no shipped profiles."""
    datasets: Annotated[dict[Name, DatasetSettings], Field(min_length=1)]
    retired_datasets: tuple[Name, ...] = ()
    """Datasets that jobs used once and may use no more. One that servers have seen spend is named here or in
    ``datasets``: a renamed one would begin with a whole budget."""
    people: dict[PersonName, Person] = Field(default_factory=dict)
    """Who decides here about jobs, with which key."""
    approval_rules: dict[Name, ApprovalRule] = Field(default_factory=dict)
    """Jobs that are approved without asking a person, where both threat models allow it."""
    model_adapters: dict[Name, OwnAdapter] = Field(default_factory=dict)
    """Further models, as ``name: package.module:Class`` or an ``OwnModule``; only the silo names code."""
    public_models: dict[Name, Path] = Field(default_factory=dict)
    """Public weights (safetensors) of which jobs may train a part, by the name that jobs give them."""
    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$")] = "cpu"
    """Where steps of DP-SGD are computed; ``auto`` takes the first GPU that is there. Needs a CUDA torch."""
    precision: Literal["float32", "bf16"] = "float32"
    """``bf16``: their layers multiply in bfloat16. Norms, sums and noise stay what they are."""
    worker: WorkerSettings = WorkerSettings()
    """The process that reads the data and trains, and its caps."""
    follow_models: bool = False
    """Whether each round's model is measured on the silo's own patients, by class; the numbers stay here."""
    threshold_he: ThresholdHeSettings | None = None
    """The Python that runs OpenFHE for threshold_bfv and threshold_ckks; this one if left out."""
    audit_sinks: Sinks = ()
    """Where copies of the silo's log go; ``audit.jsonl`` in ``state_dir`` if left out."""
    audit_wait_s: WaitSeconds = WAIT_S
    """How long a training waits for a sink to take what was logged before it."""
    proxy: Annotated[str, StringConstraints(pattern=r"^https?://[^@\s]+$")] | None = None
    """Overrides ``HTTPS_PROXY``; ``NO_PROXY`` is honoured either way. Its password is in no URL."""
    proxy_credentials: KeyReference | None = None
    """Where ``user:password`` for the proxy lies."""
    ca_bundle: Path | None = None
    """Certificates (PEM) to believe beside the federation's CA: of a proxy that is dialled by TLS."""
    health: HealthSettings | None = None
    """Where ``/livez``, ``/readyz`` and ``/metrics`` are answered; nowhere if left out."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _shared_patients_are_in_known_datasets(self) -> Self:
        for name, dataset in self.datasets.items():
            for other in dataset.patients_also_in:
                if other == name or other not in self.datasets:
                    raise ValueError(
                        f"datasets.{name}.patients_also_in: expected other datasets of this file, got {other}"
                    )
        return self

    @model_validator(mode="after")
    def _what_is_retired_is_registered_no_more(self) -> Self:
        both = sorted(set(self.retired_datasets) & self.datasets.keys())
        if both:
            raise ValueError(f"retired_datasets: expected none of datasets, got {', '.join(both)}")
        return self

    @model_validator(mode="after")
    def _people_have_keys_of_their_own(self) -> Self:
        keys = [person.verify_key for person in self.people.values()]
        if len(set(keys)) != len(keys):
            raise ValueError("people: expected a key of her own for each person, got one key twice")
        return self

    @model_validator(mode="after")
    def _rules_name_known_datasets(self) -> Self:
        for name, rule in self.approval_rules.items():
            for dataset in rule.datasets:
                if dataset not in self.datasets:
                    raise ValueError(
                        f"approval_rules.{name}.datasets: expected datasets of this file, got {dataset}"
                    )
        return self

    def scopes(self, dataset: str) -> tuple[str, ...]:
        """Every dataset that a job on ``dataset`` is charged to, as ``scopes_of``."""
        return scopes_of(self.datasets, dataset)


def scopes_of(datasets: Mapping[str, DatasetSettings], dataset: str) -> tuple[str, ...]:
    """``dataset`` last, and before it those that share patients with it.

    Sharing goes both ways, and no further: a patient who is in a third dataset too takes a line of its own.
    """
    named = datasets[dataset].patients_also_in
    back = (name for name, terms in datasets.items() if dataset in terms.patients_also_in)
    return (*sorted({*named, *back}), dataset)


def read_settings(path: Path) -> SiloSettings:
    """Read ``silo.yaml``.

    Raises:
        ConfigurationError: it cannot be read; or every field that is wrong, missing or unknown.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_SETTINGS_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read ({error.strerror}); say where the silo's settings are with --config"
        ) from error
    if len(raw) > _MAX_SETTINGS_BYTES:
        raise ConfigurationError(f"{path}: expected at most {_MAX_SETTINGS_BYTES} bytes")
    try:
        document = parse_settings(raw)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: expected YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: expected a mapping of settings, got {type(document).__name__}")
    try:
        settings = SiloSettings.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(f"{path}:\n" + "\n".join(_faults(error))) from error
    settings = _with_absolute_paths(settings, path.resolve().parent)
    _refuse_one_file_twice(settings)
    return settings


def _faults(error: ValidationError) -> list[str]:
    lines = []
    for fault in error.errors(include_url=False):
        field = ".".join(str(step) for step in fault["loc"]) or "settings"
        got = "nothing" if fault["type"] == "missing" else repr(fault["input"])[:100]
        if any(step in _UNSHOWN for step in fault["loc"]) or _LOGIN.search(repr(fault["input"])):
            got = "something else, not shown: it may hold a password"
        if fault["type"] == "value_error" and isinstance(fault["input"], dict | list):
            # Of fields together: the sentence names them, and their whole tree tells nothing.
            lines.append(f"  {field}: {fault['msg'].removeprefix('Value error, ')}")
            continue
        told = f"  {field}: {fault['msg'].removeprefix('Value error, ')}; got {got}"
        remedy = {"missing": "; add it", "extra_forbidden": "; correct its name or leave it out"}
        lines.append(told + remedy.get(fault["type"], ""))
    return lines


def _refuse_one_file_twice(settings: SiloSettings) -> None:
    """Two names for one file are two budgets for the same patients. Copies of a file cannot be told here.

    Raises:
        ConfigurationError: two datasets lie in one file, be it by a link.
    """
    name_of: dict[object, str] = {}
    for name, dataset in settings.datasets.items():
        place = place_of(dataset)
        other = name_of.setdefault(place, name)
        if other != name:
            raise ConfigurationError(
                f"datasets: {other} and {name} are one {dataset.source}; each name would have its own budget "
                "for the same patients: register it once, with all its purposes"
            )


def _with_absolute_paths(settings: SiloSettings, base: Path) -> SiloSettings:
    """Anchor every path, so that the agent's working directory does not matter."""
    datasets = {name: dataset.anchored(base) for name, dataset in settings.datasets.items()}
    return settings.model_copy(
        update={
            "state_dir": base / settings.state_dir,
            "audit_sinks": sinks_or_default(settings.audit_sinks, base / settings.state_dir, base),
            "datasets": datasets,
            "public_models": {name: base / file for name, file in settings.public_models.items()},
            "threshold_he": anchored(settings.threshold_he, base),
            "ca_bundle": None if settings.ca_bundle is None else base / settings.ca_bundle,
            "threat_model": str(base / settings.threat_model)
            if names_a_file(settings.threat_model)
            else settings.threat_model,
            "threat_model_parents": tuple(base / parent for parent in settings.threat_model_parents),
        }
    )


def names_a_file(threat_model: str) -> bool:
    """Whether the setting is a path; profiles' names have neither a slash nor an ending."""
    return "/" in threat_model or threat_model.endswith((".yaml", ".yml"))

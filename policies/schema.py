"""The words of a threat model: what is assumed, required, limited, allowed and released.

Each default is the strict choice, so weakening anything takes a line that an auditor can point at.
Each field changes a decision of a rule, a silo or a server, or is an assumption that ``explain``
quotes and a refusal follows from; what nothing enforces yet is not a field. The vocabulary is wider
than this release: ``rules_loader`` refuses by name what it cannot keep.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from policies.scalars import Architectures, ByteCount, Flag, Whole
from privacy.canonical import Frozen, Real
from privacy.ids import Name

PositiveReal = Annotated[Real, Field(gt=0)]
EpsilonCap = Annotated[Real, Field(gt=0, le=100)]
AlgorithmName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Threat = Literal["silo_host_compromise", "silo_poisoning"]
ApproverRole = Literal["data_steward", "dpo", "security", "site_admin"]


def _some_distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Nobody could be asked of an empty list; a name given twice reads as two people."""
    if not values or len(set(values)) != len(values):
        raise ValueError("expected at least one name, and each once")
    return values


class Metadata(Frozen):
    """Which threat model this is; a change of meaning takes a new version."""

    name: Name
    version: Annotated[Whole, Field(ge=1)]
    extends: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """Digest of a threat model than which this one is nowhere looser; what is left out has the default."""


class AggregatorAssumption(Frozen):
    """What the coordinator may do."""

    behaviour: Literal["trusted", "honest_but_curious", "malicious"] = "malicious"
    colludes_with_silos: Annotated[Whole, Field(ge=0)] = 2
    """Silos that may tell it all they know."""


class ShareServersAssumption(Frozen):
    """Who holds the shares of ``additive``; no default, because these are facts of a federation."""

    count: Annotated[Whole, Field(ge=2, le=16)]
    max_colluding: Annotated[Whole, Field(ge=0)]
    distinct_operators: Flag = True


class SilosAssumption(Frozen):
    """What the institutions with the data may do to each other."""

    max_colluding: Annotated[Whole, Field(ge=0)] = 2
    max_poisoning: Annotated[Whole, Field(ge=0)] = 1
    distinct_legal_entities: Flag = True
    """Minimum cohorts count institutions; false counts silos, for one institution with several sites."""


class RecipientAssumption(Frozen):
    """Who ends up with the model; the strict assumption is: everyone, with its parameters."""

    kind: Literal["silos", "external", "public"] = "public"
    """``silos``: the institutions that own silos, their researchers among them."""
    access: Literal["white_box", "black_box"] = "white_box"


class NetworkAssumption(Frozen):
    """What stands between the parties."""

    tls_inspection: Flag = True
    """A proxy may read and alter what TLS carries."""


class Assume(Frozen):
    """The adversaries."""

    aggregator: AggregatorAssumption = AggregatorAssumption()
    share_servers: ShareServersAssumption | None = None
    """Required with ``additive``, refused with every other scheme: there the aggregator is the one server."""
    silos: SilosAssumption = SilosAssumption()
    recipient: RecipientAssumption = RecipientAssumption()
    network: NetworkAssumption = NetworkAssumption()
    out_of_scope: tuple[Threat, ...] = ()
    """Threats that the authors know to be open; leaving out one that nothing stops is refused."""


class SecaggRequirement(Frozen):
    """How updates are added up without being seen."""

    scheme: Literal["additive", "pairwise", "bfv", "ckks", "threshold_ckks", "threshold_bfv", "none"] = (
        "additive"
    )


class DpRequirement(Frozen):
    """Differential privacy of each silo's contribution."""

    model: Literal["local", "distributed", "central"] = "local"
    """The least that a plan must bring: ``distributed`` noise protects towards whoever sees sums, ``local``
    noise also towards whoever sees one silo's update. A plan with local noise keeps both."""
    unit: Literal["patient", "record"] = "patient"
    max_records_per_unit: Annotated[Whole, Field(ge=1)] = 1
    """Most records of a patient that a job may use; they are drawn and clipped together, as one."""
    adjacency: Literal["add_remove", "replace_one"] = "add_remove"
    sampling: Literal["poisson", "shuffle", "fixed_size"] = "poisson"
    accountant: Literal["pld", "rdp", "gdp"] = "pld"
    secure_rng: Flag = True


def _none_is_written_out(value: object) -> object:
    """``dp: none`` takes DP away; an empty value must not."""
    if value == "none":
        return None
    if value is None or value == "":
        raise ValueError("expected the terms of dp, or the word none")
    return value


class ApprovalRequirement(Frozen):
    """Who at a silo says yes to a job before the silo takes part in it."""

    n: Annotated[Whole, Field(ge=1, le=3)] = 1
    """Different people in as many different roles, none of whom asked for the job."""
    roles: Annotated[tuple[ApproverRole, ...], AfterValidator(_some_distinct)] = (
        "data_steward",
        "dpo",
    )
    automatic: Literal["refused", "allowed"] = "refused"
    """Whether a silo's written rule may stand in for a person."""


class Require(Frozen):
    """The mechanisms a plan must bring, and the people who agree to it."""

    secagg: SecaggRequirement = SecaggRequirement()
    dp: Annotated[DpRequirement | None, BeforeValidator(_none_is_written_out)] = DpRequirement()
    validity: Literal["none", "range", "l2_bound"] = "none"
    """Checks of an update inside its shares, by ``additive`` only. With ``none``, or where a share server may
    collude, poisoning has to be out of scope."""
    approvals: ApprovalRequirement = ApprovalRequirement()
    attack_suite: Literal["none", "quick", "full"] = "none"
    """Attacks on a job that have to come out as they must before its model goes to a researcher: signed by a
    silo, or a researcher who did not ask for the job."""
    attack_suite_days: Annotated[Whole, Field(ge=1, le=3650)] = 30
    """Older results count no more; with ``attack_suite``."""


class EpsilonLimits(Frozen):
    """Caps on ε, at the plan's δ: of one round, one job, and a data set's whole life at a silo."""

    round: EpsilonCap = 0.3
    job: EpsilonCap = 1.0
    lifetime: EpsilonCap = 1.0


class Limits(Frozen):
    """Numbers that a plan, a silo or an opening may not pass."""

    min_silos_open: Annotated[Whole, Field(ge=2, le=1000)] = 5
    max_dropouts: Annotated[Whole, Field(ge=0)] = 0
    max_weight_share: Annotated[Real, Field(gt=0, le=1)] = 0.4
    """Largest part of the sum's weight that one honest silo may hold."""
    epsilon: EpsilonLimits = EpsilonLimits()
    epsilon_fallback: EpsilonLimits | None = None
    """Caps on what is left of the promise should the secure sum fail: ε by the noise that a silo adds itself.
    Left out, they are those of ``epsilon``, so that each silo must add all of the noise."""
    delta_max: Annotated[Real, Field(gt=0, lt=1)] = 1e-6
    clip_l2_max: PositiveReal = 1.0
    update_norm_max: PositiveReal = 1.0
    """With ``require.validity``: the largest norm of a whole update that silos may prove to keep."""
    min_records: Annotated[Whole, Field(ge=1)] = 100
    """The silo refuses to train on fewer, without telling how many it has."""
    upload_bytes_max: ByteCount = 64 << 20
    rounds_max: Annotated[Whole, Field(ge=1)] = 100

    @property
    def of_fallback(self) -> EpsilonLimits:
        """The caps on ε_fallback in force."""
        return self.epsilon_fallback or self.epsilon


class Allow(Frozen):
    """What may be trained; nothing, unless listed."""

    algorithms: tuple[AlgorithmName, ...] = ()
    architectures: Architectures = ()
    """``sha256:…`` digests of model terms, or the word ``any``."""


class MetricsRelease(Frozen):
    """Numbers about a model that leave the silos."""

    names: tuple[AlgorithmName, ...] = ()
    dp: Literal["withheld", "charged", "none"] = "withheld"


class ModelRelease(Frozen):
    """Who but the silos may read models, and when."""

    to: Literal["silos", "researchers"] = "silos"
    when: Literal["job_end", "every_round"] = "job_end"


class Release(Frozen):
    """What may leave the federation's servers."""

    metrics: MetricsRelease = MetricsRelease()
    model: ModelRelease = ModelRelease()


class EvidenceRequirement(Frozen):
    """Who vouches that all are shown one history of what was done, and where it is copied to."""

    witnesses_min: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    """Silos that must have cosigned a server's log before others rely on it; left out, the least that is safe
    (``Spec.witnesses_needed``)."""
    sinks_min: Annotated[Whole, Field(ge=1, le=2)] = 1
    """Places that each party copies its log to."""
    fail_closed: Flag = True
    """No training and no opening before one of them has what was logged; false for synthetic data only."""


class Retention(Frozen):
    """How long evidence is kept; updates and shares have no such line, they go with their round."""

    evidence_days: Annotated[Whole, Field(ge=1, le=36525)] = 2190
    """Logs, ledgers, approvals and packs are not removed before."""


class Spec(Frozen):
    """The threat model proper."""

    mode: Literal["enforce", "audit"] = "enforce"
    """``audit`` (synthetic data only) records a plan's breach of limits and lets it pass."""
    data_class: Literal["patient", "financial", "synthetic"]
    assume: Assume
    require: Require = Require()
    limits: Limits = Limits()
    allow: Allow = Allow()
    release: Release = Release()
    evidence: EvidenceRequirement = EvidenceRequirement()
    retention: Retention = Retention()

    @property
    def witnesses_needed(self) -> int:
        """``evidence.witnesses_min``; left out, more than half of ``min_silos_open``, and than collude."""
        if self.evidence.witnesses_min is not None:
            return self.evidence.witnesses_min
        colluding = max(self.assume.aggregator.colludes_with_silos, self.assume.silos.max_colluding)
        return max(self.limits.min_silos_open // 2, colluding) + 1


class ThreatModel(Frozen):
    """A whole policy file."""

    apiVersion: Literal["sealsum/v1"]  # noqa: N815 - the spelling of every such file's first line
    kind: Literal["ThreatModel"]
    metadata: Metadata
    spec: Spec

"""The frozen terms of a job and of each of its rounds. Everything signed is bound to them.

A researcher signs a ``JobSpec``. The aggregator derives one ``RoundPlan`` a round; its digest is the
*context* that every message, mask and share of the round carries. Change one field and no signature
or mask fits any more.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.dp_terms import DpTerms as DpTerms
from privacy.dp_terms import Fraction as Fraction
from privacy.ids import Context, Digest, HexDigest, HexKey, JobName, Name, ServerName, SiloId, SiloName
from privacy.labels import refuse_coupled_loss
from privacy.model_terms import Count as Count
from privacy.model_terms import ModelTerms as ModelTerms
from privacy.model_terms import TensorSpec as TensorSpec
from privacy.query_terms import QueryTerms
from privacy.schema import DataSchema
from privacy.training_checks import check_own_parts, check_sent, check_training, check_vectors
from privacy.training_terms import ONE_MECHANISM as ONE_MECHANISM
from privacy.training_terms import QUERIES as QUERIES
from privacy.training_terms import AlgorithmName as AlgorithmName
from privacy.training_terms import LocalTerms as LocalTerms
from privacy.training_terms import Phase as Phase
from privacy.training_terms import ServerTerms as ServerTerms
from privacy.training_terms import StepSize as StepSize
from privacy.training_terms import TrainingTerms as TrainingTerms
from privacy.vector_terms import MAX_FURTHER, FurtherVector, PositiveReal, check_further, check_packing
from privacy.vector_terms import VectorTerms as VectorTerms

PROTOCOL: Literal["sealsum/1"] = "sealsum/1"
SchemeName = Literal["additive", "pairwise", "bfv", "ckks", "threshold_bfv", "threshold_ckks"]
"""How updates are added up unseen; ``privacy.secagg.catalogue`` says what each withstands."""
THRESHOLD_SCHEMES: tuple[SchemeName, ...] = ("pairwise",)
"""Schemes in which so many silos together open what fewer cannot. Under a joint key all must, by name."""
HE_SCHEMES: tuple[SchemeName, ...] = ("bfv", "ckks", "threshold_bfv", "threshold_ckks")
"""Schemes whose updates travel as ciphertexts under an allow-listed row of parameters."""


class ValidityClaim(Frozen):
    """What each silo proves of its update before the sum, on shares that nobody can read.

    The norm is of all coordinates, weighted and encoded; the weight lies in [0, 1]. If noise is added before
    sharing, the bound is about σ·clip·√d, and a cheat may spend all of it in one direction.
    """

    kind: Literal["l2_bound"] = "l2_bound"
    norm_bound: PositiveReal
    """Largest ‖ŵ·Δ‖₂."""


Further = Annotated[
    tuple[FurtherVector, ...], Field(max_length=MAX_FURTHER, exclude_if=lambda vectors: not vectors)
]
"""The vectors of a round beside the model's; not spelled where there are none."""
Query = Annotated[QueryTerms | None, Field(exclude_if=lambda terms: terms is None)]
"""What is asked instead of training; the "model" is then the vector of answers. Not spelled if none."""


class JobSpec(Frozen):
    """One training request, as its researcher signed it."""

    job: JobName
    federation: Name
    charter: HexDigest
    purpose: Annotated[str, Field(min_length=1, max_length=500)]
    dataset: Name
    """Name under which silos have registered their data; never a path."""
    data: DataSchema
    model: ModelTerms
    initial_model: HexDigest
    training: TrainingTerms
    dp: DpTerms | None
    rounds: Count
    scheme: SchemeName = "additive"
    vector: VectorTerms
    further: Further = ()
    query: Query = None
    validity: ValidityClaim | None = None
    min_silos: Annotated[int, Field(ge=2)]
    round_deadline_s: Annotated[int, Field(ge=1, le=86400)] = 120
    """Seconds a silo has from the offer to its last byte."""

    @cached_property
    def digest(self) -> Digest:
        """What each plan of the job is bound to."""
        return digest_of("sealsum/job/v1", self)

    @model_validator(mode="after")
    def _the_algorithm_has_the_terms_it_needs(self) -> Self:
        algorithm = self.training.algorithm
        check_training(self.training, self.dp is not None)
        names = [tensor.name for tensor in self.model.layout]
        check_own_parts(self.training, self.dp is not None, names)
        check_sent(self.training, self.validity is not None, names)
        if self.training.server.tail_rounds > self.rounds:
            raise ValueError(f"training.server.tail_rounds: expected at most {self.rounds} (the rounds)")
        if self.dp is not None and self.dp.model == "distributed" and algorithm not in ONE_MECHANISM:
            # After its first step a silo's own noise moves its later gradients: shares do not add up.
            raise ValueError(
                f"dp.model: expected local with {algorithm}; noise is shared with {', '.join(ONE_MECHANISM)}"
            )
        if self.dp is not None and self.query is None:
            refuse_coupled_loss(self.data.label)
        metrics = None if self.dp is None else self.dp.metrics
        if metrics is not None and "accuracy" in metrics.names and self.data.label.kind != "classes":
            raise ValueError("dp.metrics.names: expected accuracy with a label of classes only")
        if metrics is not None and algorithm != "dp_fedsgd":
            # Later local steps start from other models: their samples would need releases of their own.
            raise ValueError(f"dp.metrics: expected none with {algorithm}; they come with dp_fedsgd only")
        check_further(self.further, metrics, self.scheme, self.validity is not None)
        check_vectors(self.training, self.model.parameters, self.further)
        check_packing(self.vector, self.scheme, self.validity is not None, self.training.sums_plain_means)
        return self

    @model_validator(mode="after")
    def _a_query_is_one_full_batch(self) -> Self:
        kind = None if self.query is None else f"dp_{self.query.kind}"
        if (self.training.algorithm in QUERIES or kind is not None) and kind != self.training.algorithm:
            raise ValueError(f"query: expected one with {' or '.join(QUERIES)}, of that kind, and only there")
        if self.dp is None or kind is None:
            return self
        plain = TrainingTerms(
            algorithm=self.training.algorithm, local_steps=1, learning_rate=1.0, server_learning_rate=1.0
        )
        if self.training != plain or (self.rounds, self.dp.sample_rate, self.dp.normaliser) != (1, 1, 1):
            raise ValueError(
                "query: expected one round of one step over all patients: rounds, local_steps, sample_rate, "
                "normaliser and learning rates 1, uniform weights and a plain server step"
            )
        if self.validity is not None or self.further or self.dp.metrics is not None:
            raise ValueError("query: expected no validity, no further vectors and no metrics of training")
        return self

    @model_validator(mode="after")
    def _views_are_averaged_before_clipping(self) -> Self:
        if self.data.views is not None and self.training.algorithm not in ("dp_fedsgd", "dp_fedavg"):
            raise ValueError(
                f"data.views: expected none with {self.training.algorithm}; they come with dp_fedsgd and "
                "dp_fedavg"
            )
        return self

    @model_validator(mode="after")
    def _model_reads_what_the_schema_gives(self) -> Self:
        if self.model.inputs != self.data.width:
            raise ValueError(
                f"model.inputs: expected {self.data.width} (the width of data), got {self.model.inputs}"
            )
        return self


class CohortMember(Frozen):
    """A silo invited to a round, with the key it must sign with."""

    silo: SiloName
    verify_key: HexKey


class ServerSlot(Frozen):
    """A share server of a round. Slot 0 holds vector shares; the others hold sealed seeds."""

    server: ServerName
    verify_key: HexKey


class RoundPlan(Frozen):
    """One plan, one cohort, one sum."""

    protocol: Literal["sealsum/1"] = PROTOCOL
    session: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    """16 random bytes, so that no two plans share a context even if all else repeats."""
    federation: Name
    charter: HexDigest
    roster_epoch: Count
    policy: HexDigest
    job: JobName
    job_digest: HexDigest
    round: Count
    rounds: Count
    scheme: SchemeName
    threshold: Annotated[int, Field(ge=2, le=100)] | None = None
    """t of ``THRESHOLD_SCHEMES``: so many silos open what fewer cannot."""
    he: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}$")] | None = None
    """Name of the allow-listed parameters of ``HE_SCHEMES``."""
    validity: ValidityClaim | None = None
    architecture: HexDigest
    model: HexDigest
    """Digest of the model every silo must start from; each hashes the bytes it received itself."""
    parameters: Count
    sent: Annotated[Count | None, Field(exclude_if=lambda count: count is None)] = None
    """How many of them this round sums, where it is not all (``privacy.sent``)."""
    cohort: Annotated[tuple[CohortMember, ...], Field(min_length=2, max_length=1000)]
    pool: Annotated[tuple[SiloName, ...], Field(max_length=1000, exclude_if=lambda pool: not pool)] = ()
    """Where a phase asks for a part of the silos: those that were here, of which the cohort was drawn."""
    servers: Annotated[tuple[ServerSlot, ...], Field(max_length=16)]
    """Share servers of ``additive``; every other scheme has one server, the aggregator, and none here."""
    training: TrainingTerms
    dp: DpTerms | None
    vector: VectorTerms
    further: Further = ()
    query: Query = None
    min_survivors: Annotated[int, Field(ge=2)]
    deadline_s: Annotated[int, Field(ge=1, le=86400)]

    @model_validator(mode="after")
    def _parties_are_sorted_and_distinct(self) -> Self:
        silos = [member.silo for member in self.cohort]
        servers = [slot.server for slot in self.servers]
        if silos != sorted(set(silos)):
            raise ValueError("cohort: expected distinct silos, sorted")
        if list(self.pool) != sorted(set(self.pool)):
            raise ValueError("pool: expected distinct silos, sorted")
        if len({member.verify_key for member in self.cohort}) != len(silos):
            raise ValueError("cohort: expected distinct keys")
        if len(set(servers)) != len(servers):
            raise ValueError("servers: expected distinct servers")
        if self.sent is not None and self.sent > self.parameters:
            raise ValueError(f"sent: expected at most {self.parameters} (the parameters), got {self.sent}")
        if not 1 <= self.round <= self.rounds:
            raise ValueError(f"round: expected 1 to {self.rounds}, got {self.round}")
        return self

    @model_validator(mode="after")
    def _the_scheme_has_what_it_needs(self) -> Self:
        if (self.scheme == "additive") != (len(self.servers) >= 2) or len(self.servers) == 1:
            raise ValueError(f"servers: expected two or more with additive, none with {self.scheme}")
        for field, schemes in (("threshold", THRESHOLD_SCHEMES), ("he", HE_SCHEMES)):
            if (self.scheme in schemes) != (getattr(self, field) is not None):
                raise ValueError(f"{field}: expected it with {', '.join(schemes)} and with no other scheme")
        if self.validity is not None and self.scheme != "additive":
            raise ValueError(f"validity: expected it with additive only, got {self.scheme}")
        if self.threshold is not None and self.threshold > len(self.cohort):
            raise ValueError(f"threshold: expected at most {len(self.cohort)} (the cohort)")
        metrics = None if self.dp is None else self.dp.metrics
        check_further(self.further, metrics, self.scheme, self.validity is not None)
        return self

    @cached_property
    def context(self) -> Context:
        """ctx = SHA-256("sealsum/ctx/v1" ‖ 0x00 ‖ canonical plan)."""
        return Context(digest_of("sealsum/ctx/v1", self))

    @property
    def silos(self) -> tuple[SiloId, ...]:
        """Ids of the invited silos, sorted."""
        return tuple(member.silo for member in self.cohort)

    @property
    def coordinates(self) -> int:
        """How many coordinates the model's vector has in this round: d, or those that are sent."""
        return self.parameters if self.sent is None else self.sent

    @property
    def vector_length(self) -> int:
        """Elements of the weighted coordinates of the model's vector and, last, the weight itself."""
        return self.vector.elements(self.coordinates) + 1

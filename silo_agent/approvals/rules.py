"""Rules by which a silo approves jobs without asking a person: explicit, and never by leaving something out.

Whether rules may decide at all is the threat models' to say (``require.approvals.automatic``).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from privacy.approval import ApprovalTerms
from privacy.canonical import Frozen, Real
from privacy.ids import Name, PartyId, PartyName
from privacy.plan import AlgorithmName

Architecture = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Purpose = Annotated[str, Field(min_length=1, max_length=500)]


class ApprovalRule(Frozen):
    """One rule of ``approval_rules``: it approves a job that keeps all its conditions."""

    researchers: Annotated[tuple[PartyName, ...], Field(min_length=1)]
    datasets: Annotated[tuple[Name, ...], Field(min_length=1)]
    purposes: tuple[Purpose, ...] = ()
    """Word for word; none listed: any that the dataset is registered for."""
    algorithms: tuple[AlgorithmName, ...] = ()
    """None listed: any with DP. A job without DP is approved only by a rule that lists its algorithm."""
    architectures: tuple[Architecture, ...] = ()
    """Digests of model terms, as threat models list them; none listed: any that those allow."""
    epsilon_job_max: Annotated[Real, Field(gt=0)] | None = None
    """Largest ε of the whole job, also by the silo's own noise alone where ``epsilon_fallback_max`` is left
    out; a job without DP has none, and so never keeps this."""
    epsilon_fallback_max: Annotated[Real, Field(gt=0)] | None = None
    """Largest ε of the whole job should the secure sum fail. Whoever asks for shared noise chooses it."""
    delta_max: Annotated[Real, Field(gt=0, lt=1)] | None = None
    """Largest δ at which both are stated: a larger one makes any ε look small."""
    rounds_max: Annotated[int, Field(ge=1)] | None = None
    recipients: tuple[Annotated[str, Field(pattern=r"^(silos|researchers)$")], ...] = ()
    """Whom the threat model may release the model to; none listed: either."""

    def broken_by(
        self, terms: ApprovalTerms, researcher: PartyId, purpose: str, epsilon_alone: float | None
    ) -> str:
        """The name of the first condition that the job does not keep; empty if it keeps all.

        ``epsilon_alone`` is ε of all rounds by the silo's own noise; ``None`` without DP.
        """
        epsilon, most_alone = terms.epsilon_job, self.epsilon_fallback_max or self.epsilon_job_max
        algorithms = terms.algorithm in self.algorithms if self.algorithms else epsilon is not None
        conditions = (
            ("researchers", researcher in self.researchers),
            ("datasets", terms.dataset in self.datasets),
            ("purposes", not self.purposes or purpose in self.purposes),
            ("algorithms", algorithms),
            ("architectures", not self.architectures or f"sha256:{terms.architecture}" in self.architectures),
            ("epsilon_job_max", _within(epsilon, self.epsilon_job_max)),
            ("epsilon_fallback_max", _within(epsilon_alone, most_alone)),
            ("delta_max", _within(terms.delta, self.delta_max)),
            ("rounds_max", self.rounds_max is None or terms.rounds_max <= self.rounds_max),
            ("recipients", not self.recipients or terms.recipient in self.recipients),
        )
        return next((name for name, kept in conditions if not kept), "")


def _within(asked: float | None, most: float | None) -> bool:
    """Where a rule sets a bound, a job that has no such number is not within it."""
    return most is None or (asked is not None and asked <= most)

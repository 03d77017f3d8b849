"""What a demo run found, as values: the one thing that summary, report, picture and table are made from."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Scores:
    """AUC of three models on the same held-out patients."""

    local_only: float
    """Trained by one hospital alone, under the same DP terms."""
    federated: float
    pooled: float
    """Trained on all hospitals' training rows in one place, without DP: what nobody may do."""


@dataclass(frozen=True)
class SiloResult:
    """One hospital at the end of the run."""

    name: str
    title: str
    records: int
    """Training rows. Public here; in a federation nobody but the hospital knows it."""
    held_out: int
    held_out_healthy: int
    scores: Scores
    """On the hospital's own held-out third."""
    local_only_everywhere: float
    """AUC of its local-only model on the held-out patients of all four hospitals."""
    epsilon: float
    epsilon_rdp: float
    epsilon_fallback: float
    """ε by the noise that this hospital added itself, should the secure sum fail; ε where it adds all."""
    delta: float
    epsilon_after_round: tuple[float, ...]
    """ε of the job after each reservation, as the silo's own ledger priced it."""
    overhead_ms: tuple[float, ...]
    """Per round, what the agent did beyond training, without waiting for others."""
    train_ms: tuple[float, ...]


@dataclass(frozen=True)
class RoundRow:
    """One round as the aggregator's log and the signed result tell it."""

    number: int
    outcome: str
    reason: str
    survivors: tuple[str, ...]
    duration_ms: float


@dataclass(frozen=True)
class RefusalRow:
    """One silo's refusal of one round."""

    round: int
    silo: str
    rule: str
    sentence: str


@dataclass(frozen=True)
class Caps:
    """The budget that the threat model allows one silo's data set."""

    round: float
    job: float
    lifetime: float
    job_fallback: float
    """Of ε_fallback in one job."""


@dataclass(frozen=True)
class Mechanism:
    """The public terms of DP-SGD in the job."""

    algorithm: str
    noise_shares: int | None
    """Honest hospitals' shares in the noise of every sum; ``None``: each adds all of it."""
    unit: str
    adjacency: str
    clip_l2: float
    noise_multiplier: float
    sample_rate: float
    local_steps: int
    accountant: str


@dataclass(frozen=True)
class Verdict:
    """What the offline verifier said about the pack, run as a process of its own."""

    exit_code: int
    checks: tuple[str, ...]
    """Its output, line by line."""

    @property
    def verified(self) -> bool:
        """Whether it accepted the pack."""
        return self.exit_code == 0


@dataclass(frozen=True)
class DemoResult:
    """Everything that a run found."""

    federation: str
    job: str
    policy_name: str
    policy_digest: str
    officers: str
    scheme: str
    parties: str
    """Who took part, counted, for people."""
    norm_bound: float | None
    """What each hospital proved of its update on shares; ``None``: nothing."""
    rounds: int
    parameters: int
    model: str
    model_released_to: str
    seed: int
    caps: Caps
    mechanism: Mechanism
    silos: tuple[SiloResult, ...]
    scores: Scores
    """On all held-out patients; ``local_only`` is the mean of the hospitals' local-only models there."""
    pooled_weight_decay: float
    bytes_up_per_silo_round: int
    """Most that a hospital's agent sent in a round: request bodies, repetitions included, no headers."""
    openings: int
    history: tuple[RoundRow, ...]
    refusals: tuple[RefusalRow, ...]
    claim: str

    @property
    def overheads_ms(self) -> tuple[float, ...]:
        """Every agent's overhead of every round."""
        return tuple(value for silo in self.silos for value in silo.overhead_ms)

    @property
    def round_ms(self) -> tuple[float, ...]:
        """Duration of each round at the aggregator, from offer to published model."""
        return tuple(row.duration_ms for row in self.history)

    @property
    def idle_ms(self) -> tuple[float, ...]:
        """Per round, what its duration exceeds the slowest agent's training and own work by.

        Servers' work, the network and waiting are all in it.
        """
        idle = []
        for index, row in enumerate(self.history):
            busy = [
                silo.train_ms[index] + silo.overhead_ms[index]
                for silo in self.silos
                if index < len(silo.train_ms) and index < len(silo.overhead_ms)
            ]
            if busy:
                idle.append(max(0.0, row.duration_ms - max(busy)))
        return tuple(idle)


def middle(values: tuple[float, ...]) -> float:
    """Median, 0 where nothing was measured."""
    return float(median(values)) if values else 0.0


def largest(values: tuple[float, ...]) -> float:
    """Maximum, 0 where nothing was measured."""
    return float(max(values, default=0.0))

"""``summary.json``: the figures of a demo run for machines, and the table of them for a terminal."""

from __future__ import annotations

from rich.table import Table

from privacy.canonical import Frozen
from sealsum import __version__
from sealsum.demo.results import DemoResult, Verdict, largest, middle

NOTE = (
    "AUC was computed by the demo itself on public data, outside the federation: it alone has all four "
    "files. A real federation charges such figures to the budget or withholds them."
)


class PolicySummary(Frozen):
    """Which threat model was in force."""

    name: str
    digest: str


class SiloScores(Frozen):
    """AUC on the hospital's own held-out third."""

    local_only: float
    federated: float
    pooled: float
    local_only_on_all: float


class SiloSummary(Frozen):
    """One hospital."""

    name: str
    records: int
    held_out: int
    epsilon: float
    epsilon_rdp: float
    epsilon_fallback: float
    delta: float
    rounds_trained: int
    auc: SiloScores


class OverallScores(Frozen):
    """AUC on the held-out patients of all hospitals together."""

    local_only_mean: float
    federated: float
    pooled: float


class Spread(Frozen):
    """Median and largest of a measured duration, milliseconds."""

    median: float
    max: float


class Timings(Frozen):
    """What a round took, measured by the processes themselves."""

    round_ms: Spread
    agent_overhead_ms: Spread
    """The agents' own work in a round beyond training."""
    agent_training_ms: Spread
    round_beyond_slowest_agent_ms: Spread
    """Servers, network and waiting."""


class RefusalSummary(Frozen):
    """One refusal."""

    round: int
    silo: str
    rule: str
    sentence: str


class Summary(Frozen):
    """The whole of ``summary.json``."""

    version: str
    policy: PolicySummary
    algorithm: str
    noise_shares: int | None
    scheme: str
    parties: str
    norm_bound: float | None
    rounds: int
    params: int
    model: str
    seed: int
    silos: tuple[SiloSummary, ...]
    auc: OverallScores
    bytes_up_per_silo_round: int
    openings: int
    refusals: int
    refusal_details: tuple[RefusalSummary, ...]
    evidence: str
    verified: bool
    officers: str
    timings: Timings
    duration_s: float
    note: str


def summarise(result: DemoResult, verdict: Verdict, evidence: str, duration_s: float) -> Summary:
    """The run's figures; AUC to four digits, ε to four digits rounded to nearest, times to 0.1 ms."""
    return Summary(
        version=__version__,
        policy=PolicySummary(name=result.policy_name, digest=result.policy_digest),
        algorithm=result.mechanism.algorithm,
        noise_shares=result.mechanism.noise_shares,
        scheme=result.scheme,
        parties=result.parties,
        norm_bound=result.norm_bound,
        rounds=result.rounds,
        params=result.parameters,
        model=result.model,
        seed=result.seed,
        silos=tuple(
            SiloSummary(
                name=silo.name,
                records=silo.records,
                held_out=silo.held_out,
                epsilon=round(silo.epsilon, 4),
                epsilon_rdp=round(silo.epsilon_rdp, 4),
                epsilon_fallback=round(silo.epsilon_fallback, 4),
                delta=silo.delta,
                rounds_trained=len(silo.epsilon_after_round),
                auc=SiloScores(
                    local_only=round(silo.scores.local_only, 4),
                    federated=round(silo.scores.federated, 4),
                    pooled=round(silo.scores.pooled, 4),
                    local_only_on_all=round(silo.local_only_everywhere, 4),
                ),
            )
            for silo in result.silos
        ),
        auc=OverallScores(
            local_only_mean=round(result.scores.local_only, 4),
            federated=round(result.scores.federated, 4),
            pooled=round(result.scores.pooled, 4),
        ),
        bytes_up_per_silo_round=result.bytes_up_per_silo_round,
        openings=result.openings,
        refusals=len(result.refusals),
        refusal_details=tuple(
            RefusalSummary(round=row.round, silo=row.silo, rule=row.rule, sentence=row.sentence)
            for row in result.refusals
        ),
        evidence=evidence,
        verified=verdict.verified,
        officers=result.officers,
        timings=Timings(
            round_ms=_spread(result.round_ms),
            agent_overhead_ms=_spread(result.overheads_ms),
            agent_training_ms=_spread(tuple(ms for silo in result.silos for ms in silo.train_ms)),
            round_beyond_slowest_agent_ms=_spread(result.idle_ms),
        ),
        duration_s=round(duration_s, 1),
        note=NOTE,
    )


def table_of(summary: Summary) -> Table:
    """The closing table of a run."""
    deltas = ", ".join(sorted({f"{silo.delta:g}" for silo in summary.silos}))
    title = f"AUC on held-out patients (pooled: without DP), ε at δ = {deltas}"
    table = Table(title=title, title_justify="left")
    table.add_column("hospital", no_wrap=True)
    shared = summary.noise_shares is not None
    fallback = ("ε_fallback",) if shared else ()
    for heading in ("local\nonly", "federated", "pooled", "ε spent", *fallback, "rounds"):
        table.add_column(heading, justify="right")
    for silo in summary.silos:
        auc = silo.auc
        table.add_row(
            silo.name,
            f"{auc.local_only:.3f}",
            f"{auc.federated:.3f}",
            f"{auc.pooled:.3f}",
            f"{silo.epsilon:.3f}",
            *((f"{silo.epsilon_fallback:.3f}",) if shared else ()),
            str(silo.rounds_trained),
        )
    table.add_section()
    overall = summary.auc
    table.add_row(
        "all four",
        f"{overall.local_only_mean:.3f}",
        f"{overall.federated:.3f}",
        f"{overall.pooled:.3f}",
        "",
        *(("",) if shared else ()),
        str(summary.rounds),
        style="bold",
    )
    return table


def _spread(values: tuple[float, ...]) -> Spread:
    return Spread(median=round(middle(values), 1), max=round(largest(values), 1))

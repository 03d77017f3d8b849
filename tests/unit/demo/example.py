"""A made-up result of a run, for what only displays results."""

from __future__ import annotations

from sealsum.demo.patients import HOSPITALS
from sealsum.demo.results import (
    Caps,
    DemoResult,
    Mechanism,
    RefusalRow,
    RoundRow,
    Scores,
    SiloResult,
)


def example_result(
    rounds: int = 20,
    refusals: tuple[RefusalRow, ...] = (),
    scheme: str = "additive",
    norm_bound: float | None = None,
    noise_shares: int | None = None,
) -> DemoResult:
    """Four hospitals with plausible figures."""
    scores = [
        Scores(0.906, 0.889, 0.901),
        Scores(0.922, 0.936, 0.937),
        Scores(0.622, 0.51, 0.482),
        Scores(0.664, 0.852, 0.842),
    ]
    silos = tuple(
        SiloResult(
            name=hospital.silo,
            title=hospital.title,
            records=100 + 10 * index,
            held_out=50 + index,
            held_out_healthy=3 + 10 * index,
            scores=score,
            local_only_everywhere=0.8,
            epsilon=2.997,
            epsilon_rdp=3.31,
            epsilon_fallback=4.46 if noise_shares else 2.997,
            delta=1e-5,
            epsilon_after_round=tuple(2.997 * ((r + 1) / rounds) ** 0.55 for r in range(rounds)),
            overhead_ms=tuple(40.0 + r for r in range(rounds)),
            train_ms=tuple(80.0 + r for r in range(rounds)),
        )
        for index, (hospital, score) in enumerate(zip(HOSPITALS, scores, strict=True))
    )
    return DemoResult(
        federation="heart-demo",
        job="heart-disease",
        policy_name="demo-hospitals",
        policy_digest="ab" * 32,
        officers="cd" * 32,
        scheme=scheme,
        parties="4 hospitals",
        norm_bound=norm_bound,
        rounds=rounds,
        parameters=1051,
        model="mlp",
        model_released_to="researchers",
        seed=0,
        caps=Caps(round=1.0, job=3.0, lifetime=8.0, job_fallback=5.0 if noise_shares else 3.0),
        mechanism=Mechanism(
            algorithm="dp_fedsgd",
            noise_shares=noise_shares,
            unit="patient",
            adjacency="add_remove",
            clip_l2=0.5,
            noise_multiplier=6.22,
            sample_rate=1.0,
            local_steps=1,
            accountant="dp-accounting 0.6 PLD",
        ),
        silos=silos,
        scores=Scores(0.797, 0.904, 0.911),
        pooled_weight_decay=0.01,
        bytes_up_per_silo_round=9876,
        openings=rounds,
        history=tuple(
            RoundRow(r + 1, "opened", "", tuple(s.name for s in silos), 180.0 + r) for r in range(rounds)
        ),
        refusals=refusals,
        claim="Adding or removing one patient's records at a hospital changes the probability of any outcome "
        "by at most a factor e^3.00, except with probability 1e-05 <b>.",
    )

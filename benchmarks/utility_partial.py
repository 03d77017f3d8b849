"""What training a part of a public model is worth: a network from MNIST at 8 × 8, on 1,438 private digits.

    SEALSUM_DATA=… python benchmarks/utility_partial.py [--epsilon 1 3] [--seeds 4] [--json]

The base, an mlp of 64, 64, 32 and 10 units, is trained without DP on MNIST's 60,000 images shrunk to 8 × 8:
other writers, another scanner, public. Then central DP-SGD on the digits of scikit-learn, every record a
step; ``dp_fedsgd`` without colluding silos opens the same sums, whatever the split. Rates were chosen once,
on seed 100.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

if not __package__:  # run as a file; opacus installs a package of this name, which would be found first
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.utility_methods import DELTA, VECTOR, noise
from privacy.plan import DpTerms, ModelTerms, ServerTerms, TrainingTerms
from sealsum.simulator.alone import train_alone
from sealsum.simulator.plan import RoundTerms
from silo_agent.data.records import Records
from silo_agent.engines.loss import summed_loss
from silo_agent.models.adapters import ADAPTERS, ModelAdapter, build_model, export_vector, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.models.partial import Partial
from silo_agent.models.partial_layouts import partial_start, partial_terms

WHOLE = model_terms("mlp", 64, (64, 32), 10)
STEPS = 60
HELD_OUT = 359


@dataclass(frozen=True)
class Way:
    """One way to train: the model's terms, what builds it, where it begins, and its learning rate."""

    terms: ModelTerms
    adapter: ModelAdapter
    start: NDArray[np.float32]
    rate: float


def public_base() -> NDArray[np.float32]:
    """The base's weights, float32[d]: ten epochs of Adam on MNIST at 8 × 8."""
    with np.load(Path(os.environ["SEALSUM_DATA"]) / "mnist" / "mnist.npz", allow_pickle=False) as arrays:
        images, labels = arrays["train_images"], arrays["train_labels"].astype(np.float32)
    # The digits fill their frame, as MNIST's do without their border of four pixels.
    inner = torch.from_numpy(images[:, None, 4:24, 4:24].astype(np.float32))
    small = torch.nn.functional.adaptive_avg_pool2d(inner, 8).flatten(1).numpy()
    records = Records((small / 127.5 - 1).astype(np.float32), labels, classes=10)
    module = build_model(ADAPTERS["mlp"], WHOLE, initial_vector(WHOLE, 0)).train()
    descent = torch.optim.Adam(module.parameters(), lr=2e-3)
    order = np.random.default_rng(0)
    for _ in range(10):
        for rows in np.array_split(order.permutation(len(records)), len(records) // 256):
            descent.zero_grad()
            torch.autograd.backward(summed_loss(module, records, rows) / len(rows))
            descent.step()
    return export_vector(WHOLE, module)


def ways(base: NDArray[np.float32]) -> dict[str, Way]:
    """Name → way."""
    plain, partial = ADAPTERS["mlp"], Partial(ADAPTERS["mlp"], base)

    def part(rate: float, trainable: tuple[str, ...] = (), low_rank: tuple[str, ...] = ()) -> Way:
        terms = partial_terms(WHOLE, base, "base", trainable, low_rank, 4 if low_rank else None)
        return Way(terms, partial, partial_start(terms, base, 0), rate)

    return {
        "whole network from random weights": Way(WHOLE, plain, initial_vector(WHOLE, 0), 2.0),
        "whole network from the base": Way(WHOLE, plain, base, 1.0),
        "last layer": part(2.0, ("layer3.*",)),
        "biases": part(2.0, ("*.bias",)),
        "last layer, rank 4 beside the others": part(1.0, ("layer3.*",), ("layer1", "layer2")),
    }


def digits(seed: int) -> tuple[Records, Records]:
    """Training and held-out images, split by the seed."""
    bunch = load_digits()
    features = (bunch.data / 8.0 - 1.0).astype(np.float32)
    records = Records(features, bunch.target.astype(np.float32), classes=10)
    order = np.random.default_rng(seed).permutation(len(records))
    return records.rows(order[HELD_OUT:]), records.rows(order[:HELD_OUT])


def score(way: Way, vector: NDArray[np.float32], held_out: Records) -> float:
    """Percent right."""
    logits = predict_scores(way.adapter, way.terms, vector, held_out.features)
    return 100 * float(np.mean(logits.argmax(1) == held_out.labels))


def trained(way: Way, epsilon: float, train: Records) -> NDArray[np.float32]:
    """After central DP-SGD: tail average over the second half."""
    training = TrainingTerms(
        algorithm="dp_fedavg",
        local_steps=1,
        learning_rate=1.0,
        server_learning_rate=way.rate,
        server=ServerTerms(tail_rounds=STEPS // 2),
    )
    dp = DpTerms(
        unit="record",
        sample_rate=1.0,
        noise_multiplier=noise(epsilon, 1.0, STEPS),
        clip_l2=1.0,
        normaliser=len(train),
        delta=DELTA,
    )
    terms = RoundTerms(way.terms, training, dp, VECTOR)
    return train_alone(terms, way.adapter, train, way.start, STEPS)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = public_base()
    rows: dict[str, dict[str, list[float]]] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        train, held_out = digits(seed)
        for name, way in ways(base).items():
            before = rows.setdefault(name, {}).setdefault("before", [])
            before.append(score(way, way.start, held_out))
            for epsilon in options.epsilon:
                found = score(way, trained(way, epsilon, train), held_out)
                rows[name].setdefault(f"ε = {epsilon:g}", []).append(found)
    if options.json:
        print(json.dumps({"seeds": options.seeds, "scores": rows}, indent=1))
        return
    for name, cells in rows.items():
        size = ways(base)[name].terms.parameters
        shown = "  ".join(f"{at} {np.mean(of):.1f} ± {np.std(of):.1f}" for at, of in cells.items())
        print(f"{name:38}{size:>7,}  {shown}")


if __name__ == "__main__":
    main()

"""What federating is compared with: each hospital alone under the same DP, and all data pooled without DP.

Runs as a process of its own beside the federation: ``python -m sealsum.demo.baselines REQUEST ANSWER``.
The pooled model is what nobody in the federation may train; the demo can, since the data are public.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from privacy.plan import ModelTerms, TrainingTerms
from sealsum.demo.baselines_terms import BaselineAnswer, BaselineRequest
from sealsum.demo.job import first_model
from sealsum.demo.scoring import auc_of, joined, read_tables
from silo_agent.algorithms.catalogue import ALGORITHMS
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ADAPTERS, build_model, export_vector
from silo_agent.update import GridUpdate

POOLED_STEPS = 300
POOLED_LEARNING_RATE = 0.02
WEIGHT_DECAYS = (1e-3, 3e-3, 1e-2, 3e-2)
FOLDS = 3


def train_alone(request: BaselineRequest, records: Records) -> NDArray[np.float32]:
    """One hospital's model by the silo agent's own algorithm, as many steps as in the federation: float32[d].

    Alone, it has nobody to share noise with: it adds all of it.
    """
    vector = first_model(request.model, request.seed)
    dp = request.dp.model_copy(update={"model": "local", "noise_shares": None})
    adapter, workbench = ADAPTERS[request.model.adapter], Workbench()
    for _ in range(request.rounds):
        task = Task(
            model=request.model,
            training=request.training,
            dp=dp,
            vector=request.vector,
            start=vector,
            adapter=adapter,
            records=records,
            workbench=workbench,
        )
        vector = stepped(vector, update_of(task), request.training)
    return vector


def update_of(task: Task) -> NDArray[np.float64]:
    """What the job's algorithm makes of a task, in the units of the model: float64[d]."""
    update = ALGORITHMS[task.training.algorithm](task)
    if isinstance(update, GridUpdate):
        return update.steps / 2.0**task.vector.scale_bits
    return update.values.astype(np.float64)


def stepped(
    vector: NDArray[np.float32], mean: NDArray[np.float64], training: TrainingTerms
) -> NDArray[np.float32]:
    """The model after the server's step: float32[d]."""
    moved = vector.astype(np.float64) + training.server_learning_rate * mean
    return moved.astype(np.float32)


def train_pooled(
    model: ModelTerms, start: NDArray[np.float32], records: Records, weight_decay: float
) -> NDArray[np.float32]:
    """Full-batch Adam on the mean loss plus ``weight_decay`` · ‖θ‖², without DP: float32[d]."""
    torch.set_num_threads(1)
    module = build_model(ADAPTERS[model.adapter], model, start)
    optimizer = torch.optim.Adam(module.parameters(), lr=POOLED_LEARNING_RATE)
    features, labels = torch.from_numpy(records.features), torch.from_numpy(records.labels)
    for _ in range(POOLED_STEPS):
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(module(features).squeeze(-1), labels)
        penalty = torch.stack([parameter.square().sum() for parameter in module.parameters()]).sum()
        torch.autograd.backward(loss + weight_decay * penalty)
        optimizer.step()
    return export_vector(model, module)


def chosen_weight_decay(model: ModelTerms, start: NDArray[np.float32], records: Records, seed: int) -> float:
    """The weight decay with the best mean AUC over folds of the training rows; held-out rows play no part."""
    fold = np.random.default_rng(seed).permutation(len(records)) % FOLDS
    means = [
        np.mean(
            [
                auc_of(
                    model,
                    train_pooled(model, start, _rows(records, fold != left_out), weight_decay),
                    _rows(records, fold == left_out),
                )
                for left_out in range(FOLDS)
            ]
        )
        for weight_decay in WEIGHT_DECAYS
    ]
    return WEIGHT_DECAYS[int(np.argmax(means))]


def compare(request: BaselineRequest) -> BaselineAnswer:
    """Train and score both baselines."""
    training, held_out = read_tables(request.data, request.hospitals)
    everyone = joined(held_out)
    alone = {name: train_alone(request, records) for name, records in training.items()}
    start = first_model(request.model, request.seed)
    weight_decay = chosen_weight_decay(request.model, start, joined(training), request.seed)
    pooled = train_pooled(request.model, start, joined(training), weight_decay)
    return BaselineAnswer(
        local_only={name: auc_of(request.model, alone[name], held_out[name]) for name in alone},
        local_only_on_all={name: auc_of(request.model, alone[name], everyone) for name in alone},
        pooled={name: auc_of(request.model, pooled, held_out[name]) for name in alone},
        pooled_on_all=auc_of(request.model, pooled, everyone),
        weight_decay=weight_decay,
    )


def _rows(records: Records, chosen: NDArray[np.bool_]) -> Records:
    return Records(records.features[chosen], records.labels[chosen])


if __name__ == "__main__":
    _request = BaselineRequest.model_validate_json(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_text(compare(_request).model_dump_json(), encoding="utf-8")

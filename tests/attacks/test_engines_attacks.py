"""Attacks on what a step may reveal: many records of one patient, models that couple records or keep them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from policies.rules_plan import limit_findings
from privacy.errors import ConfigurationError
from privacy.plan import DpTerms, TrainingTerms, VectorTerms
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.engines.choice import engine_for
from silo_agent.engines.group_norm import with_group_norm
from silo_agent.engines.workbench import Workbench
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import initial_vector, model_terms
from tests.unit.policies.policies_terms import altered, bent_policy, honest_round
from tests.unit.silo_agent.engine_models import KINDS, build, records_for

WIDTH = 6


@pytest.mark.parametrize("kind", ["mlp", "cnn2d", "positions", "group_norm", "embedding", "wide"])
def test_a_patient_with_fifty_records_moves_the_sum_by_at_most_c(kind: str) -> None:
    """Fifty aligned records would move a sum that is clipped by record by up to 50 · C."""
    module = build(KINDS[kind], 1)
    others = records_for(KINDS[kind], 20, 1)
    heavy = np.repeat(3 * records_for(KINDS[kind], 1, 9).features, 50, axis=0)
    features = np.concatenate([others.features, heavy])
    labels = np.concatenate([others.labels, np.ones(50, np.float32)])
    units = np.concatenate([np.arange(20), np.full(50, 20)]).astype(np.int64)
    by_patient, by_record = Records(features, labels, units=units), Records(features, labels)
    engine = engine_for(module, KINDS[kind].inputs)
    clip = 1e-3
    with_heavy = engine.clipped_sum(by_patient, np.arange(21), clip)
    without = engine.clipped_sum(by_patient, np.arange(20), clip)
    assert np.linalg.norm(with_heavy - without) <= clip
    # The attack, where the protection is off: units are records.
    unprotected = engine.clipped_sum(by_record, np.arange(70), clip)
    assert np.linalg.norm(unprotected - engine.clipped_sum(by_record, np.arange(20), clip)) > 40 * clip


def test_sampling_takes_all_of_a_patients_records_or_none() -> None:
    """Of two records that cancel, one alone would show; drawn together neither ever does."""
    terms = model_terms("logistic", WIDTH)
    features = np.repeat(np.ones((1, WIDTH), np.float32), 2, axis=0)
    labels = np.array([0, 1], dtype=np.float32)  # at zero weights their gradients cancel
    records = Records(features, labels, units=np.zeros(2, np.int64))
    dp = DpTerms(unit="patient", records_per_unit=2, sample_rate=0.5, noise_multiplier=1e-9, clip_l2=10.0,
                 normaliser=1.0, delta=1e-5)  # fmt: skip
    training = TrainingTerms(
        algorithm="dp_fedavg", local_steps=1, learning_rate=1.0, server_learning_rate=1.0
    )
    vector = VectorTerms(coordinate_bound=4.0, scale_bits=20)
    start = initial_vector(terms, 0)
    for _ in range(64):
        update = dp_fedavg(Task(terms, training, dp, vector, start, ADAPTERS["logistic"], records)).values
        assert np.abs(update).max() < 1e-6


class _Centred(nn.Module):
    """Subtracts the batch's mean: a statistic without a BatchNorm."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given - given.mean(0)


class _Counting(nn.Module):
    """Keeps the last batch's sum in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        self.seen += given.detach().sum()
        return given


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(torch.tanh(self.layer(torch.tanh(self.layer(given)))))
        return result


class _BehindTheHooks(nn.Module):
    """Uses a layer's weight without calling the layer: hooks do not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.layer(given) @ self.layer.weight)
        return result


class _TokensAsBatch(nn.Module):
    """Shows a layer the parts of records as if each were a record: they would be clipped one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.out = nn.Linear(9, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(torch.tanh(self.layer(given.reshape(-1, 2))).reshape(len(given), -1))
        return result


class _DropoutFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(nn.functional.dropout(given, 0.5, self.training))
        return result


class _InPlace(nn.Module):
    """Overwrites a layer's output by a function, which no layer shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(torch.relu_(self.layer(given)))
        return result


def _tied() -> nn.Module:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(WIDTH, 1))


def _frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1))
    module[0].weight.requires_grad_(False)
    return module


def _then_linear(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.Linear(WIDTH, 1))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch_norm": (lambda: _then_linear(nn.BatchNorm1d(WIDTH)), r"0: BatchNorm1d mixes .* use GroupNorm"),
    "running_statistics": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, WIDTH)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten(),
            nn.Linear(WIDTH, 1),
        ),
        "track_running_stats=False",
    ),
    "tied": (_tied, r"2\.weight: it is the parameter 0\.weight as well; give each layer its own"),
    "frozen": (_frozen, r"0\.weight: it is frozen; make it a buffer"),
    "half": (lambda: nn.Linear(WIDTH, 1).half(), r"expected float32 or float64, got torch\.float16"),
    "in_place": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 3), nn.ReLU(inplace=True), nn.Linear(3, 1)),
        "1: ReLU changes its input in place; write inplace=False",
    ),
    "in_place_function": (_InPlace, r"model\.layer: its input or output is changed in place"),
    "coupled": (lambda: _then_linear(_Centred()), "records are not apart"),
    "changing_buffer": (lambda: _then_linear(_Counting()), r"model\.0\.seen: training changes this buffer"),
    "behind_the_hooks": (_BehindTheHooks, "no engine can train it privately"),
    "tokens_as_batch": (_TokensAsBatch, "one row a record in its input's first dimension"),
    "dropout_function": (_DropoutFunction, r"nn\.Dropout rather than its function"),
    "other_width": (lambda: nn.Linear(WIDTH + 1, 1), f"does not take {WIDTH} numbers"),
    "no_output_each": (lambda: nn.Sequential(nn.Linear(WIDTH, 1), nn.Flatten(0)), r"expected \[9, outputs\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_leak_past_the_clip_is_refused_with_the_fix(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ConfigurationError, match=message):
        engine_for(make().train(), WIDTH)


def test_what_book_keeping_does_not_know_falls_to_opacus() -> None:
    module = _then_linear(parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)))
    assert engine_for(module.train(), WIDTH).name == "opacus_hooks"


def test_a_linear_layer_that_is_called_twice_has_the_gradient_of_both_calls() -> None:
    assert engine_for(_Twice().train(), WIDTH).name == "book_keeping"


def test_what_opacus_gets_wrong_is_refused() -> None:
    """Its convolution pads with zeros whatever the layer says: wrong gradients, clipped by wrong norms."""
    module = nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(),
        nn.Linear(2 * WIDTH, 1),
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"padding_mode circular.*opacus_hooks does not see all"):
        engine_for(module.train(), WIDTH)


def test_what_is_wrong_behind_a_last_layer_of_zeros_is_refused_too() -> None:
    """Its first gradients are zero there, right or wrong: low-rank layers and heads begin like that."""
    last = nn.Linear(2 * WIDTH, 1)
    nn.init.zeros_(last.weight)
    module = nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(),
        last,
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match="opacus_hooks does not see all"):
        engine_for(module.train(), WIDTH)


class _CoupledInCrowds(nn.Module):
    """Keeps records apart until there are more than four."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given - given.mean(0) if len(given) > 4 else given


def test_records_that_are_coupled_in_larger_batches_only_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="records are not apart"):
        engine_for(_then_linear(_CoupledInCrowds()).train(), WIDTH)


def test_looking_at_a_model_leaves_its_weights_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 1)).train()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    engine_for(module, WIDTH)
    for parameter, kept in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, kept)


def test_a_plan_with_more_records_of_a_patient_than_the_threat_model_allows_is_refused() -> None:
    honest = honest_round()
    assert honest.plan.dp is not None
    plan = altered(honest.plan, dp=honest.plan.dp.model_copy(update={"records_per_unit": 4}))
    for allowed, rules in ((1, ["dp_records_per_unit"]), (3, ["dp_records_per_unit"]), (4, []), (9, [])):
        policy = bent_policy({"require.dp.max_records_per_unit": allowed})
        assert [finding.rule for finding in limit_findings(policy, plan, honest.charter)] == rules


def test_dropout_modules_are_no_reason_to_refuse() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, 1)).train()
    assert engine_for(module, WIDTH).name == "book_keeping"
    assert module[1].training


def test_group_norm_in_the_place_of_batch_norm_keeps_the_layout_and_is_accepted() -> None:
    module = nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 6, 2), nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()),
        nn.Flatten(), nn.Linear(54, 1),
    )  # fmt: skip
    before = [(name, parameter.shape) for name, parameter in module.named_parameters()]
    replaced = with_group_norm(module).train()
    assert [(name, parameter.shape) for name, parameter in replaced.named_parameters()] == before
    assert not list(replaced.buffers())
    assert engine_for(replaced, 16).name == "book_keeping"


def test_nothing_of_a_round_is_in_the_next_but_the_weights_that_came() -> None:
    terms = model_terms("mlp", WIDTH, (5,))
    bench, records = Workbench(), records_for(KINDS["mlp"], 8, 2)
    first = bench.engine(ADAPTERS["mlp"], terms, initial_vector(terms, 1))
    once = first.clipped_sum(records, np.arange(8), 0.5)
    other = bench.engine(ADAPTERS["mlp"], terms, initial_vector(terms, 2))
    assert other is first
    other.clipped_sum(records, np.arange(4), 0.5)
    again = bench.engine(ADAPTERS["mlp"], terms, initial_vector(terms, 1)).clipped_sum(
        records, np.arange(8), 0.5
    )
    np.testing.assert_array_equal(again, once)
    wider = model_terms("mlp", WIDTH, (7,))
    assert bench.engine(ADAPTERS["mlp"], wider, initial_vector(wider, 1)) is not first

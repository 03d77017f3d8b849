"""ResNet and U-Net: built as described, trained with each record clipped, and able to learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, group_norm, interpolate, max_pool2d

from privacy.errors import ConfigurationError
from privacy.labels import LabelKind
from privacy.measures import dice
from privacy.plan import DpTerms, ModelTerms, TrainingTerms, VectorTerms
from privacy.update import split_tensors
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.engines.choice import engine_for
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.image_layouts import image_of
from silo_agent.models.layouts import initial_vector, model_terms
from tests.unit.silo_agent.engine_models import clipped_one_by_one

SIDE = 8
GREY, COLOUR = SIDE**2, 3 * SIDE**2
SIZES = [
    ("resnet", GREY, (4,), 1),
    ("resnet", COLOUR, (4, 4, 8), 3),
    ("unet", GREY, (4, 8), GREY),
    ("unet", COLOUR, (4, 8, 8), GREY),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As agents train: two threads on maps this small take several times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def terms_of(adapter: str, inputs: int, hidden: Sequence[int], outputs: int) -> ModelTerms:
    return model_terms(adapter, inputs, hidden, outputs)


def vector_of(terms: ModelTerms) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    drawn = np.random.default_rng(5)
    return initial_vector(terms, 0) + drawn.normal(scale=0.2, size=terms.parameters).astype(np.float32)


def records_of(terms: ModelTerms, outputs: int, count: int = 5, **changes: object) -> Records:
    drawn = np.random.default_rng(6)
    features = drawn.uniform(-1, 1, (count, terms.inputs)).astype(np.float32)
    kind: LabelKind = "mask" if outputs == GREY else "classes"
    shape = (count, outputs) if kind == "mask" else (count,)
    labels = drawn.integers(0, 2, shape).astype(np.float32)
    return Records(features, labels, classes=max(2, outputs), kind=kind, **changes)  # type: ignore[arg-type]


# --- what is built ---


@pytest.mark.parametrize("sizes", SIZES)
def test_what_is_built_has_the_layout_that_jobs_describe(sizes: tuple[str, int, Sequence[int], int]) -> None:
    terms = terms_of(*sizes)
    scores = predict_scores(ADAPTERS[sizes[0]], terms, vector_of(terms), np.zeros((2, sizes[1]), np.float32))
    assert scores.reshape(2, -1).shape == (2, sizes[3])


def test_a_residual_block_computes_what_its_article_says() -> None:
    terms = terms_of("resnet", GREY, (4, 8), 1)
    vector = vector_of(terms)
    records = np.random.default_rng(2).uniform(-1, 1, (3, GREY)).astype(np.float32)
    given = {name: torch.from_numpy(tensor) for name, tensor in split_tensors(terms, vector).items()}

    def norm(maps: torch.Tensor, name: str) -> torch.Tensor:
        return group_norm(maps, maps.shape[1] // 4, given[f"{name}.weight"], given[f"{name}.bias"])

    def block(maps: torch.Tensor, name: str, stride: int) -> torch.Tensor:
        inner = conv2d(maps, given[f"{name}.conv1.weight"], stride=stride, padding=1)
        inner = conv2d(norm(inner, f"{name}.norm1").relu(), given[f"{name}.conv2.weight"], padding=1)
        if stride == 2:
            maps = norm(conv2d(maps, given[f"{name}.shortcut.weight"], stride=2), f"{name}.shortcut_norm")
        return (norm(inner, f"{name}.norm2") + maps).relu()

    maps = conv2d(torch.from_numpy(records).view(3, 1, SIDE, SIDE), given["stem.weight"], padding=1)
    maps = block(block(norm(maps, "stem_norm").relu(), "block1", 1), "block2", 2)
    expected = (maps.mean((2, 3)) @ given["head.weight"].T + given["head.bias"]).squeeze(-1).numpy()
    assert np.allclose(predict_scores(ADAPTERS["resnet"], terms, vector, records), expected, atol=1e-5)


def test_a_u_net_computes_what_its_article_says() -> None:
    terms = terms_of("unet", GREY, (4, 8), GREY)
    vector = vector_of(terms)
    records = np.random.default_rng(2).uniform(-1, 1, (3, GREY)).astype(np.float32)
    given = {name: torch.from_numpy(tensor) for name, tensor in split_tensors(terms, vector).items()}

    def step(maps: torch.Tensor, conv: str, norm: str) -> torch.Tensor:
        maps = conv2d(maps, given[f"{conv}.weight"], padding=1)
        return group_norm(maps, maps.shape[1] // 4, given[f"{norm}.weight"], given[f"{norm}.bias"]).relu()

    def twice(maps: torch.Tensor, name: str) -> torch.Tensor:
        return step(step(maps, f"{name}.conv1", f"{name}.norm1"), f"{name}.conv2", f"{name}.norm2")

    kept = twice(torch.from_numpy(records).view(3, 1, SIDE, SIDE), "down1")
    below = twice(max_pool2d(kept, 2), "down2")
    narrowed = step(interpolate(below, scale_factor=2), "up1.narrow", "up1.narrow_norm")
    maps = twice(torch.cat([kept, narrowed], 1), "up1.join")
    expected = conv2d(maps, given["head.weight"], given["head.bias"]).flatten(1).numpy()
    assert np.allclose(predict_scores(ADAPTERS["unet"], terms, vector, records), expected, atol=1e-4)


def test_a_number_of_pixels_is_grey_or_in_colour_and_never_both() -> None:
    assert (image_of("unet", 28 * 28).channels, image_of("unet", 28 * 28).side) == (1, 28)
    assert (image_of("unet", 3 * 32 * 32).channels, image_of("unet", 3 * 32 * 32).side) == (3, 32)


@pytest.mark.parametrize(
    ("adapter", "inputs", "hidden", "outputs", "message"),
    [
        ("resnet", 65, (4,), 1, "model.inputs: expected side² numbers .* with resnet"),
        ("resnet", 49, (4,), 1, "of 8 pixels a side or more, got 49"),
        ("resnet", GREY, (), 1, r"model.hidden: expected the channels of its blocks.*got \[\]"),
        ("resnet", GREY, (6,), 1, "in multiples of 4"),
        ("resnet", GREY, (4, 8, 4, 8, 4, 8), 1, "expected at most 3 changes of channels"),
        ("unet", GREY, (4,), GREY, "expected 2 to 5 levels"),
        ("unet", 100, (4, 4, 4), 100, "expected 2 to 5 levels.* for 10 pixels a side, got 3"),
        ("unet", GREY, (4, 8), 1, "unet tells each of 64 pixels, and the job's label has 1 outputs"),
        ("cox", 5, (), 2, "cox has one output, and the job's label has 2"),
        ("cox", 5, (3,), 1, "expected none with cox"),
        ("linear", 5, (3,), 1, "expected none with logistic and linear"),
        (
            "tree",
            5,
            (),
            1,
            "expected one of logistic, linear, cox, mlp, cnn, resnet, unet, experts, hypernetwork, got",
        ),
    ],
)
def test_sizes_that_fit_no_such_model_are_refused(
    adapter: str, inputs: int, hidden: tuple[int, ...], outputs: int, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_terms(adapter, inputs, hidden, outputs)


def test_normalisation_begins_as_none() -> None:
    terms = terms_of("resnet", GREY, (4,), 1)
    tensors = split_tensors(terms, initial_vector(terms, 0))
    assert (tensors["block1.norm1.weight"] == 1).all()
    assert not tensors["block1.norm1.bias"].any()
    assert tensors["block1.conv1.weight"].any()


def test_a_linear_cox_model_has_no_intercept_and_begins_at_zero() -> None:
    terms = model_terms("cox", 5)
    assert [(one.name, one.shape) for one in terms.layout] == [("layer1.weight", (1, 5))]
    assert not initial_vector(terms, 0).any()
    vector, records = np.arange(5, dtype=np.float32), np.ones((2, 5), dtype=np.float32)
    assert predict_scores(ADAPTERS["cox"], terms, vector, records).tolist() == [10.0, 10.0]


# --- how it is trained privately ---


def module_of(terms: ModelTerms) -> nn.Module:
    return build_model(ADAPTERS[terms.adapter], terms, vector_of(terms)).double().train()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("units", [None, np.array([0, 0, 1, 2, 2])])
def test_every_record_is_clipped_and_opacus_agrees(
    sizes: tuple[str, int, Sequence[int], int], units: np.ndarray[tuple[int], np.dtype[np.int64]] | None
) -> None:
    terms = terms_of(*sizes)
    records = records_of(terms, sizes[3], units=units)
    sample, clip = np.arange(records.unit_count), 0.05
    module = module_of(terms)
    engine = engine_for(module, terms.inputs)
    assert engine.name == "book_keeping"
    got = engine.clipped_sum(records, sample, clip)
    expected = clipped_one_by_one(module, records, sample, clip)
    assert np.linalg.norm(got - expected) <= 1e-7 * clip
    hooks = OpacusHooks(module_of(terms)).clipped_sum(records, sample, clip)
    assert np.linalg.norm(got - hooks) <= 1e-7 * clip


@pytest.mark.parametrize("sizes", SIZES[::3])
def test_private_steps_move_it_and_stay_finite(sizes: tuple[str, int, Sequence[int], int]) -> None:
    terms = terms_of(*sizes)
    dp = DpTerms(
        unit="record", sample_rate=1.0, noise_multiplier=1.0, clip_l2=0.1, normaliser=5.0, delta=1e-5
    )
    training = TrainingTerms(
        algorithm="dp_fedavg", local_steps=2, learning_rate=0.1, server_learning_rate=1.0
    )
    update = dp_fedavg(_task(terms, training, records_of(terms, sizes[3]), dp))
    assert np.isfinite(update.values).all()
    assert update.values.any()


# --- whether it learns ---


def _task(terms: ModelTerms, training: TrainingTerms, records: Records, dp: DpTerms | None = None) -> Task:
    return Task(
        model=terms,
        training=training,
        dp=dp,
        vector=VectorTerms(coordinate_bound=8.0, scale_bits=16),
        start=initial_vector(terms, 1),
        adapter=ADAPTERS[terms.adapter],
        records=records,
    )


def _squares(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Noisy images with a bright square somewhere, and where it is."""
    drawn = np.random.default_rng(seed)
    images, masks = drawn.normal(0, 0.3, (count, SIDE, SIDE)) - 0.5, np.zeros((count, SIDE, SIDE))
    for image, mask, (top, left) in zip(images, masks, drawn.integers(0, SIDE - 3, (count, 2)), strict=True):
        image[top : top + 3, left : left + 3] += 1.0
        mask[top : top + 3, left : left + 3] = 1.0
    return images.reshape(count, -1).astype(np.float32), masks.reshape(count, -1).astype(np.float32)


def test_a_u_net_learns_to_find_a_square_by_its_dice_loss() -> None:
    terms = terms_of("unet", GREY, (4, 8), GREY)
    images, masks = _squares(24, 0)
    training = TrainingTerms(algorithm="fedavg", local_steps=60, learning_rate=0.5, server_learning_rate=1.0)
    task = _task(terms, training, Records(images, masks, kind="mask"))
    model = (task.start + fedavg(task).values).astype(np.float32)
    seen, truth = _squares(40, 1)
    found = predict_scores(ADAPTERS["unet"], terms, model, seen) > 0
    assert dice(found, truth).mean() > 0.7

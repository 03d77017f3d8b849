"""What job.yaml may leave out under DP: the algorithm, its one step, the noise for a target, the grid."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.rules_noise import noise_on_a_sound_grid
from policies.schema import Assume, Spec
from privacy.dp.accountant import epsilon
from privacy.dp.events import round_event
from privacy.dp.integer_noise import MOST_DEVIATION, integer_mechanism
from privacy.errors import ConfigurationError
from privacy.plan import SchemeName
from privacy.secagg.catalogue import SCHEMES
from sealsum.job_file import JobFile, read_job_file
from tests.federation import Federation

TEXT = """
job: heart-risk
purpose: predict heart disease
dataset: cardio
data:
  features:
    - {kind: numeric, column: age, low: 20, high: 90, impute: 55}
    - {kind: categorical, column: cp, categories: [1, 2, 3, 4], indicator: true}
  label: {column: num, threshold: 0}
  patient_id: patient
model: {adapter: mlp, hidden: [4], seed: 1}
training: {server_learning_rate: 0.5}
dp: {unit: patient, sample_rate: 0.2, target_epsilon: 3, clip_l2: 1.0, normaliser: 40, delta: 1e-5}
rounds: 20
min_silos: 3
"""


def read(directory: Path, *changes: tuple[str, str], text: str = TEXT) -> JobFile:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = directory / "job.yaml"
    path.write_text(text)
    return read_job_file(path)


def test_under_dp_the_algorithm_left_out_is_one_private_step_a_round(tmp_path: Path) -> None:
    training = read(tmp_path).training
    assert (training.algorithm, training.local_steps, training.learning_rate) == ("dp_fedsgd", 1, 1.0)
    assert training.server_learning_rate == 0.5


def test_without_dp_it_is_averaging_with_server_momentum_over_ten_local_updates(tmp_path: Path) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("dp:"))
    plain = read(tmp_path, (line, "dp: none"), ("{server", "{local_steps: 3, learning_rate: 0.2, server"))
    assert (plain.training.algorithm, plain.training.local_steps) == ("fedavg", 3)
    left_out = read(tmp_path, (line, "dp: none")).training
    assert (left_out.algorithm, left_out.local_steps, left_out.server.momentum) == ("fedavg", 10, 0.9)
    assert read(tmp_path, (line, "dp: none"), ("{server_learning_rate: 0.5}", "{}")).training == left_out


def test_an_algorithm_that_is_named_is_kept(tmp_path: Path) -> None:
    named = ("{server", "{algorithm: dp_fedavg, local_steps: 2, learning_rate: 0.1, server")
    assert read(tmp_path, named).training.algorithm == "dp_fedavg"


@pytest.mark.parametrize("rounds", [1, 20, 300])
def test_a_target_becomes_noise_that_meets_it_and_hardly_more(tmp_path: Path, rounds: int) -> None:
    asked = read(tmp_path, ("rounds: 20", f"rounds: {rounds}"))
    assert asked.dp is not None
    whole = round_event(asked.dp, asked.training).model_copy(update={"steps": rounds})
    assert 2.99 < epsilon([whole], 1e-5) <= 3.0


def test_neither_noise_nor_target_is_refused_by_both_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="or target_epsilon for it; got neither"):
        read(tmp_path, ("target_epsilon: 3, ", ""))


def test_a_target_beside_the_noise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected noise_multiplier or target_epsilon, got both"):
        read(tmp_path, ("target_epsilon: 3", "target_epsilon: 3, noise_multiplier: 2"))


@pytest.mark.parametrize(
    ("change", "field"),
    [(("rounds: 20", "rounds: 0"), "rounds"), (("sample_rate: 0.2, ", ""), "sample_rate")],
)
def test_a_target_without_a_whole_schedule_is_refused_with_the_field(
    tmp_path: Path, change: tuple[str, str], field: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"target_epsilon: expected a whole schedule.*{field}"):
        read(tmp_path, change)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_grid_left_out_is_one_that_the_gate_admits_under_every_scheme(
    tmp_path: Path, scheme: SchemeName
) -> None:
    federation = Federation()
    asked = read(tmp_path, ("min_silos: 3", f"min_silos: 3\nscheme: {scheme}"))
    spec = asked.spec(federation.charter, asked.first_model())
    assert spec.dp is not None
    mechanism = integer_mechanism(spec.dp, spec.training, spec.vector, spec.model.parameters)
    assert mechanism.deviation <= MOST_DEVIATION
    plan = federation.plan(federation.job_spec()).model_copy(
        update={"dp": spec.dp, "training": spec.training, "vector": spec.vector}
    )
    judge = Spec(data_class="patient", assume=Assume())
    assert list(noise_on_a_sound_grid(judge, plan, federation.charter)) == []


def test_shared_noise_is_written_with_its_shares(tmp_path: Path) -> None:
    asked = read(tmp_path, ("unit: patient,", "unit: patient, model: distributed, noise_shares: 2,"))
    assert asked.dp is not None
    assert asked.dp.own_noise_multiplier == pytest.approx(asked.dp.noise_multiplier / 2**0.5)
    with pytest.raises(ConfigurationError, match="noise_shares: expected it with model distributed"):
        read(tmp_path, ("unit: patient,", "unit: patient, model: distributed,"))


def test_a_misspelt_algorithm_is_told_before_any_noise_is_sought(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"training\.algorithm: expected one of .*, got 'fedsgd'"):
        read(tmp_path, ("{server", "{algorithm: fedsgd, server"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("0.5}", "0.5, server: {tail_rounds: 21}}"), r"tail_rounds: expected at most 20"),
        (("{server", "{local_steps: 5, server"), r"training: expected local_steps 1"),
    ],
)
def test_fields_that_make_no_job_together_are_refused_as_configuration(
    tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    asked = read(tmp_path, change)
    with pytest.raises(ConfigurationError, match=rf"job heart-risk:\n  .*{told}"):
        asked.spec(Federation().charter, asked.first_model())

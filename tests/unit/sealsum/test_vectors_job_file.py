"""job.yaml with training metrics: the vector that carries them, and the noise left for the gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from privacy.errors import ConfigurationError
from sealsum.job_file import JobFile, read_job_file
from tests.federation import Federation

TEXT = """
job: heart-risk
purpose: predict heart disease
dataset: cardio
data: {features: [{kind: numeric, column: age, low: 20, high: 90, impute: 55}],
       label: {column: num, threshold: 0}, patient_id: patient}
model: {adapter: logistic}
training: {server_learning_rate: 0.5}
dp: {unit: patient, sample_rate: 0.2, target_epsilon: 3, clip_l2: 1.0, normaliser: 40, delta: 1e-5METRICS}
rounds: 50
min_silos: 3
"""


def _read(directory: Path, metrics: str = "") -> JobFile:
    path = directory / "job.yaml"
    path.write_text(TEXT.replace("METRICS", metrics))
    return read_job_file(path)


def test_a_job_that_asks_for_metrics_carries_their_vector_and_keeps_its_target(tmp_path: Path) -> None:
    asked = _read(tmp_path, ", metrics: {names: [accuracy, loss], noise_multiplier: 40.0, loss_cap: 4.0}")
    plain = _read(tmp_path)
    assert asked.dp is not None
    assert plain.dp is not None
    federation = Federation()
    (vector,) = asked.spec(federation.charter, asked.first_model()).further
    assert (vector.name, vector.coordinates, vector.opens_to) == ("metrics", 3, "sum")
    assert plain.spec(federation.charter, plain.first_model()).further == ()
    # The gradient gets more noise, so that both together cost what was asked for.
    assert asked.dp.noise_multiplier > plain.dp.noise_multiplier
    assert asked.dp.charged_noise_multiplier == pytest.approx(plain.dp.noise_multiplier, rel=1e-4)
    assert asked.dp.charged_noise_multiplier >= plain.dp.noise_multiplier


def test_metrics_that_would_use_up_the_whole_target_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing of the target is left"):
        _read(tmp_path, ", metrics: {names: [accuracy], noise_multiplier: 0.5}")

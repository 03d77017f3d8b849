"""Which training terms go together, with DP and without, and the reason where they do not.

A job's submitter reads these sentences, and so do its silos. Knows no DP terms: it is told whether a job
has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from privacy.personal_terms import check_personal, own_tensors
from privacy.training_terms import OWN_WEIGHTS, WITHOUT_DP, LocalTerms, TrainingTerms
from privacy.vector_terms import CONTROL, CURVATURE, HESSIAN, MASK, MOST_COORDINATES, FurtherVector


def check_training(training: TrainingTerms, private: bool) -> None:
    """Raises ValueError, saying why, unless these terms go together, with DP (``private``) or without.

    What a silo may do under DP is what reads its own noised steps and public models alone: it is
    post-processing. Whatever reads records once more would have to be clipped, noised and charged.
    """
    algorithm, local = training.algorithm, training.local
    if (algorithm in WITHOUT_DP) == private:
        without = ", ".join(WITHOUT_DP)
        raise ValueError(f"dp: expected none with {without}, and terms with dp_*, got {algorithm}")
    if algorithm == "dp_fedsgd" and (training.local_steps, training.weights) != (1, "uniform"):
        raise ValueError("training: expected local_steps 1 and uniform weights with dp_fedsgd")
    if private:
        _check_private(training)
    if local.coordinate_clip is not None and algorithm not in ("fedavg", "dp_fedavg"):
        raise ValueError(f"training.local.coordinate_clip: expected none with {algorithm}")
    if (training.weights == "agnostic") != (local.gamma > 0):
        raise ValueError("training.local.gamma: expected more than 0 with weights agnostic, and only there")
    fair = (algorithm == "qfedavg", training.weights == "fair", local.q > 0)
    if len(set(fair)) > 1:
        raise ValueError("training: expected weights fair and local.q above 0 with qfedavg, and only there")
    if (local.loss_cap is not None) != (training.weights in ("agnostic", "fair")):
        raise ValueError("training.local.loss_cap: expected it with weights agnostic or fair, and only there")
    if (algorithm == "mifa") != (training.server.silos > 0):
        raise ValueError("training.server.silos: expected the number of silos with mifa, and only there")
    if training.server.ridge > 0 and algorithm != "newton":
        raise ValueError("training.server.ridge: expected it with newton only")
    _check_masks(training)
    _check_control(training)
    _check_cache(training)
    _check_steps(training)


def check_own_parts(training: TrainingTerms, private: bool, tensors: Sequence[str]) -> None:
    """Raises ValueError, saying why, unless these terms allow own parts of the model's ``tensors``."""
    server, local = training.server, training.local
    check_personal(
        training.personal,
        private,
        tensors,
        plain=(training.algorithm, local.control, local.projection) == ("fedavg", "none", False)
        and training.weights not in OWN_WEIGHTS,
        still=server.optimizer == "sgd" and server.momentum == 0,
    )


def check_sent(training: TrainingTerms, proven: bool, tensors: Sequence[str]) -> None:
    """Raises ValueError, saying why, unless a round of these terms can send a part of the model only.

    Args:
        proven: a proof of validity bounds the update. tensors: names of the model's, in order.
    """
    layered = [phase for phase in training.phases if phase.layers]
    for phase in layered:
        try:
            own_tensors(tensors, phase.layers)
        except ValueError as error:
            raise ValueError(f"training.phases.layers: {error}") from error
    if training.sparse is None and not layered:
        return
    algorithm, local = training.algorithm, training.local
    field = "training.phases.layers" if training.sparse is None else "training.sparse"
    if algorithm not in ("fedavg", "dp_fedavg", "dp_fedsgd"):
        raise ValueError(f"{field}: expected none with {algorithm}; fedavg, dp_fedavg and dp_fedsgd have it")
    if (local.control, local.projection, local.reuse_below, training.personal) != ("none", False, 0, None):
        raise ValueError(
            f"{field}: expected none beside control, projection, reuse_below and own parts, which read "
            "updates as if the whole model were sent"
        )
    if proven:
        raise ValueError(f"{field}: expected none with validity, whose proof is of all coordinates")
    if training.sparse is not None and training.sparse.feedback and algorithm == "dp_fedsgd":
        raise ValueError(
            "training.sparse.feedback: expected false with dp_fedsgd: what is added to its integers would "
            "leave the range that its noise was charged for; use dp_fedavg"
        )


def check_vectors(training: TrainingTerms, parameters: int, further: Sequence[FurtherVector]) -> None:
    """Raises ValueError unless the vectors that the server's step reads are there, and no others of these."""
    needed = {
        "qfedavg": (CURVATURE, 1, "sum"),
        "newton": (HESSIAN, parameters * (parameters + 1) // 2, "mean"),
        "sparse_masks": (MASK, parameters, "sum"),
    }
    twice = training.local.control_sums == 2
    asked = (CONTROL, parameters, "mean") if twice else needed.get(training.algorithm)
    if asked is not None and asked[1] > MOST_COORDINATES:
        most = 44 if asked[0] == HESSIAN else MOST_COORDINATES
        field = "local.control_sums: expected 1, or" if twice else "algorithm: expected"
        named = "control_sums 2" if twice else training.algorithm
        raise ValueError(
            f"training.{field} a model of at most {most} parameters with {named}, whose {asked[0]} is "
            f"published, got {parameters}"
        )
    given = [
        (vector.name, vector.coordinates, vector.opens_to)
        for vector in further
        if vector.name in (CONTROL, CURVATURE, HESSIAN, MASK)
    ]
    if given != ([] if asked is None else [asked]):
        raise ValueError(
            f"further: expected {asked or 'no such vector'} with {training.algorithm}, got {given}"
        )


def _check_private(training: TrainingTerms) -> None:
    local = training.local
    if any(phase.local_steps is not None for phase in training.phases):
        raise ValueError(
            "training.phases.local_steps: expected none with dp: a ledger charges each round of a job alike; "
            "phases may still differ in silos_share"
        )
    if training.weights in OWN_WEIGHTS:
        raise ValueError(
            f"training.weights: expected uniform with dp, got {training.weights}: they are computed from "
            "records, and no noise covers their sum"
        )
    if local.gradient_clip is not None:
        raise ValueError(
            "training.local.gradient_clip: expected none with dp, where each unit's gradient is clipped to "
            "dp.clip_l2; leave it out"
        )
    if local.batch_size is not None:
        raise ValueError(
            "training.local.batch_size: expected none with dp: a batch is a Poisson sample there, by "
            "dp.sample_rate, or its noise would be charged wrongly"
        )
    if training.algorithm != "dp_fedavg" and local != LocalTerms():
        raise ValueError(
            f"training.local: expected nothing with {training.algorithm}: its one step starts from the "
            "model that came, where a pull is zero and corrections cancel in the sum; use dp_fedavg"
        )


def _check_masks(training: TrainingTerms) -> None:
    minimum, masked = training.server.mask_minimum, training.algorithm == "sparse_masks"
    if (training.local.mask_share > 0, minimum > 0, minimum > 1) != (masked, masked, masked):
        raise ValueError(
            "training: expected local.mask_share above 0 and server.mask_minimum of at least 2 with "
            "sparse_masks, and only there"
        )
    if masked and (training.weights != "uniform" or training.local.projection):
        raise ValueError("training: expected uniform weights and no projection with sparse_masks")


def _check_control(training: TrainingTerms) -> None:
    """SCAFFOLD's one-sum form reads the mean update off two models in a row; else there are two."""
    local = training.local
    if local.control == "none":
        if local.control_sums != 1:
            raise ValueError("training.local.control_sums: expected 1 without local.control, got 2")
        return
    if training.algorithm not in ("fedavg", "dp_fedavg"):
        raise ValueError(f"training.local.control: expected none with {training.algorithm}")
    if local.control == "warm" and training.algorithm == "dp_fedavg":
        raise ValueError(
            "training.local.control: expected zero with dp: a warm start reads the gradient at the first "
            "model, which nothing clips, noises or charges"
        )
    if local.control_sums == 2 and training.algorithm == "dp_fedavg":
        raise ValueError(
            "training.local.control_sums: expected 1 with dp: beside the update only vectors with noise of "
            "their own are summed there; leave it out, with plain server steps"
        )
    if not training.server.reads_off_the_mean and local.control_sums == 1:
        raise ValueError(
            "training.server: expected plain steps (sgd, no momentum, no schedule, no averages) with "
            "local.control: silos read the mean update off two models in a row; with control_sums: 2 it is "
            f"summed by itself, of models of at most {MOST_COORDINATES} parameters without dp"
        )
    if training.weights in OWN_WEIGHTS or local.projection or local.proximal_mu > 0:
        raise ValueError(
            "training.local.control: expected no weights that move, no projection and no proximal_mu beside "
            "it: corrections sum to zero only under the weights that they were made with"
        )


def _check_cache(training: TrainingTerms) -> None:
    """Updates that are sent again are whole descents on all records, and nothing else is remembered."""
    local = training.local
    if (local.reuse_below > 0) != (local.reuse_rounds > 0):
        raise ValueError(
            "training.local: expected reuse_below and reuse_rounds both above 0, or neither, got "
            f"{local.reuse_below:g} and {local.reuse_rounds}"
        )
    if local.reuse_below == 0:
        return
    plain = (local.control, local.projection, local.batch_size) == ("none", False, None)
    fixed = training.weights not in OWN_WEIGHTS and training.personal is None and not training.phases
    if training.algorithm != "fedavg" or not plain or not fixed:
        raise ValueError(
            "training.local.reuse_below: expected fedavg on all records, without control, projection, "
            "weights of the silos' own, own parts and phases beside it: an update that is sent again must be "
            "of the same steps"
        )


def _check_steps(training: TrainingTerms) -> None:
    local = training.local
    if training.algorithm == "newton" and any(phase.local_steps is not None for phase in training.phases):
        raise ValueError("training.phases.local_steps: expected none with newton, which takes one step")
    if training.algorithm == "newton" and (
        training.local_steps != 1 or local != LocalTerms() or training.weights in OWN_WEIGHTS
    ):
        raise ValueError(
            "training: expected local_steps 1, nothing of local, and uniform or examples weights with newton"
        )
    if training.algorithm == "newton" and training.server.optimizer != "sgd":
        raise ValueError("training.server.optimizer: expected sgd with newton, whose step has its own scale")
    if training.algorithm == "mifa" and (training.weights != "uniform" or local.projection):
        raise ValueError("training: expected uniform weights and no projection with mifa")
    if training.algorithm == "qfedavg" and local.projection:
        raise ValueError("training.local.projection: expected none with qfedavg, which divides by its norm")

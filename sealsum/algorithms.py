"""The catalogue of training algorithms: what each name of a job file stands for, and what one should know
of it.

A name is an algorithm that silos know, with terms; what a job file says itself goes before them. Parameters
have the field's names (Flower, FLamby). One row an algorithm: the docs' table and ``sealsum algorithm
list`` read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from sealsum.algorithm_row import TEN, AlgorithmRow, Terms
from sealsum.algorithms_personal import PERSONAL_ROWS

GRADIENT_CLIP: Final = 10.0
"""Written into jobs without DP that say nothing else: a gradient this long is a fault, not a signal."""
_ONE = {"local_steps": 1, "learning_rate": 1.0, "server_learning_rate": 1.0}
DEFAULT, DEFAULT_PRIVATE = "fedavgm", "dp_fedsgd"
_UNCHARGED_WEIGHTS = (
    "its weights are computed from records and no noise covers their sum; with DP use dp_fedsgd, whose "
    "sum counts every patient alike"
)
CATALOGUE: Final[Mapping[str, AlgorithmRow]] = MappingProxyType(
    {
        "fedavg": AlgorithmRow(
            {"algorithm": "fedavg", **TEN},
            None,
            "local steps on its own records",
            "the mean update",
            refused="plain steps read records without clipping or noise; with DP use dp_fedavg or dp_fedsgd",
        ),
        "fedavgm": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "server_learning_rate": 0.5, "server": {"momentum": 0.9}},
            {"algorithm": "dp_fedsgd", "server": {"momentum": 0.9}},
            "as fedavg; with DP as dp_fedsgd",
            "momentum over mean updates",
        ),
        "fedadam": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "server_learning_rate": 0.01, "server": {"optimizer": "adam"}},
            {"algorithm": "dp_fedsgd", "server_learning_rate": 0.01, "server": {"optimizer": "adam"}},
            "as fedavg; with DP as dp_fedsgd",
            "Adam on mean updates",
        ),
        "fedyogi": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "server_learning_rate": 0.01, "server": {"optimizer": "yogi"}},
            {"algorithm": "dp_fedsgd", "server_learning_rate": 0.01, "server": {"optimizer": "yogi"}},
            "as fedavg; with DP as dp_fedsgd",
            "Yogi on mean updates",
        ),
        "fedprox": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "local": {"proximal_mu": 0.1}},
            {"algorithm": "dp_fedavg", "local": {"proximal_mu": 0.1}},
            "after each step a pull toward the round's model",
            "the mean update",
        ),
        "scaffold": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "local": {"control": "zero"}},
            {"algorithm": "dp_fedavg", "local": {"control": "zero"}},
            "each step corrected by what it has learnt of its own drift, which it keeps",
            "the mean update; plain steps only, or any with control_sums: 2 and d at most 1024",
            cost="one sum, or two; two vectors of the model's size on the silo's disk",
        ),
        "client_cache": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "local": {"reuse_below": 0.1, "reuse_rounds": 3}},
            None,
            "sends its last update again, compensated, while its gradient has hardly changed",
            "the mean update",
            cost="one sum; two vectors of the model's size on the silo's disk; one pass where it is cached",
            refused=(
                "whether a silo trains anew is decided by a gradient that nothing clips, noises or charges; "
                "with DP use dp_fedsgd"
            ),
        ),
        "gradient_projection": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "local": {"projection": True}},
            {"algorithm": "dp_fedavg", "local": {"projection": True}},
            "takes out of its update what goes against the last global one",
            "the mean update",
            cost="one sum; one vector of the model's size on the silo's disk",
        ),
        "sqrt_n_over_divergence": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "weights": "sqrt_n_over_divergence"},
            None,
            "weighs √records / (1 + divergence), 1 − cosine of its update and the last global one",
            "the weighted mean",
            leaks="the sum of the weights, to the aggregator",
            refused=_UNCHARGED_WEIGHTS,
        ),
        "quality": AlgorithmRow(
            {"algorithm": "fedavg", **TEN, "weights": "quality"},
            None,
            "weighs exp(−own loss) after its steps",
            "the weighted mean",
            leaks="the sum of the weights, to the aggregator",
            refused=_UNCHARGED_WEIGHTS,
        ),
        "agnostic": AlgorithmRow(
            {
                "algorithm": "fedavg",
                **TEN,
                "weights": "agnostic",
                "local": {"gamma": 1.0, "loss_cap": 2.0},
            },
            None,
            "weighs exp(γ · own loss), averaged over rounds: the worst off count most",
            "the weighted mean",
            leaks="the sum of the weights, to the aggregator",
            refused=_UNCHARGED_WEIGHTS,
        ),
        "qfedavg": AlgorithmRow(
            {
                "algorithm": "qfedavg",
                **TEN,
                "weights": "fair",
                "local": {"q": 1.0, "loss_cap": 2.0},
            },
            None,
            "weighs loss^q, and adds to the divisor by its update's length",
            "Σ loss^q · update over that divisor",
            cost="one sum and one number",
            leaks="the sum of weights, to the aggregator; the divisor's second term, to all",
            refused=_UNCHARGED_WEIGHTS,
            schemes="all but threshold_bfv and threshold_ckks, which decrypt one vector a round; no validity",
            further=("curvature",),
        ),
        "mifa": AlgorithmRow(
            {"algorithm": "mifa", **TEN},
            None,
            "sends what its update differs by from its last one that counted",
            "adds up everybody's last update, absent silos' too, and averages over all silos",
            cost="one sum; one vector on the silo's disk and one at the server",
            refused="a difference of two rounds' updates is no step that a ledger has charged; use dp_fedsgd",
        ),
        "newton": AlgorithmRow(
            {"algorithm": "newton", **_ONE, "server": {"ridge": 1e-3}},
            None,
            "gradient and Hessian of its mean loss",
            "one Newton step",
            cost="one sum and a triangle of d(d+1)/2 numbers; d at most 44, few rounds",
            leaks="the mean Hessian, to all: second moments of features, as a statistics query would release",
            refused="nothing clips, noises or charges a Hessian; use dp_fedsgd, or dp_statistics for moments",
            schemes="all but threshold_bfv and threshold_ckks, which decrypt one vector a round; no validity",
            further=("hessian",),
        ),
        "dp_fedavg": AlgorithmRow(
            None,
            {"algorithm": "dp_fedavg"},
            "local DP-SGD: several private steps, its own noise in each",
            "the mean update",
            cost="one sum; ε for every step",
            leaks="what ε allows",
        ),
        "dp_fedsgd": AlgorithmRow(
            None,
            {"algorithm": "dp_fedsgd", "local_steps": 1, "learning_rate": 1.0},
            "one private step: a clipped sum and its share of the noise",
            "the mean of all patients' gradients",
            cost="one sum; ε for one step",
            leaks="what ε allows",
        ),
        **PERSONAL_ROWS,
    }
)
_ALIASES: Final = {
    "num_updates": ("local_steps",),
    "eta": ("server_learning_rate",),
    "eta_l": ("learning_rate",),
    "server_momentum": ("server", "momentum"),
    "beta_1": ("server", "beta_1"),
    "beta_2": ("server", "beta_2"),
    "tau": ("server", "tau"),
    "ridge": ("server", "ridge"),
    "proximal_mu": ("local", "proximal_mu"),
    "gradient_clip": ("local", "gradient_clip"),
    "batch_size": ("local", "batch_size"),
    "control": ("local", "control"),
    "control_sums": ("local", "control_sums"),
    "reuse_below": ("local", "reuse_below"),
    "reuse_rounds": ("local", "reuse_rounds"),
    "gamma": ("local", "gamma"),
    "q": ("local", "q"),
    "loss_cap": ("local", "loss_cap"),
    "mask_share": ("local", "mask_share"),
    "mask_minimum": ("server", "mask_minimum"),
    "local_param": ("personal", "local_param"),
    "every": ("personal", "every"),
    "regular_weight": ("personal", "regular_weight"),
}
"""Names of Flower, FLamby, FederatedScope and our own, as they may stand right under ``training``."""


def training_of(asked: Terms, private: bool) -> dict[str, Any]:
    """The training terms of a job file with what its algorithm's row says and it does not.

    Raises:
        ValueError: no such algorithm; it is refused with DP, with the reason. One that needs DP and has
        none is
            for the job to refuse.
    """
    name = asked.get("algorithm", DEFAULT_PRIVATE if private else DEFAULT)
    row = CATALOGUE.get(name)
    if row is None:
        raise ValueError(f"training.algorithm: expected one of {', '.join(CATALOGUE)}, got {name!r}")
    terms = row.private if private else row.terms
    if terms is None and private:
        raise ValueError(f"dp: expected none with {name}: {row.refused}")
    if terms is None:
        terms = row.private or {}
    said = {key: value for key, value in _unfolded(asked).items() if key != "algorithm"}
    filled = _merged({"server_learning_rate": 1.0, **terms}, said)
    if terms["algorithm"] == "dp_fedsgd":
        filled = {"local_steps": 1, "learning_rate": 1.0, **filled}
    if row.terms is not None and not private and terms["algorithm"] != "newton":
        filled = _merged({"local": {"gradient_clip": GRADIENT_CLIP}}, filled)
    return filled


def _unfolded(asked: Terms) -> dict[str, Any]:
    """With every alias at its place.

    Raises:
        ValueError: a field is given twice.
    """
    tree: dict[str, Any] = {}
    for key, value in asked.items():
        path = _ALIASES.get(key, (key,))
        given: Any = None if value == "none" and key == "gradient_clip" else value
        for part in reversed(path[1:]):
            given = {part: given}
        if path[0] in tree and not (isinstance(given, dict) and isinstance(tree[path[0]], dict)):
            raise ValueError(f"training.{key}: expected one of it and training.{'.'.join(path)}, got both")
        if path[0] in tree and set(given) & set(tree[path[0]]):
            raise ValueError(f"training.{key}: expected one of it and training.{'.'.join(path)}, got both")
        tree = _merged(tree, {path[0]: given})
    return tree


def _merged(below: Terms, above: Terms) -> dict[str, Any]:
    """Both; where both say something, ``above``. Mappings inside are merged too."""
    merged = dict(below)
    for key, value in above.items():
        earlier = merged.get(key)
        if isinstance(earlier, Mapping) and isinstance(value, Mapping):
            value = _merged(earlier, value)
        merged[key] = value
    return merged

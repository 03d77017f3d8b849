"""What each party of a run saw and never saw, by scheme, and what is not claimed: words for the report."""

from __future__ import annotations

Row = tuple[str, str, str]
"""Party, what it saw in this run, what it never saw."""

_SHARE_SERVERS: tuple[Row, ...] = (
    (
        "first share server",
        "one masked vector a hospital and round: uniform noise without the seed",
        "a seed, an update, the model's sum",
    ),
    (
        "second share server",
        "one sealed seed a hospital and round",
        "a vector, an update, the model's sum",
    ),
    (
        "aggregator",
        "plans, models, one opened sum a round",
        "one hospital's update, count or share",
    ),
)
_CHECKING_SHARES: tuple[Row, ...] = (
    (
        "first share server",
        "one masked vector and one share of its proof a hospital and round: uniform noise without the other "
        "server's seed; what the other server worked out for each check",
        "the other server's seed, an update, the model's sum",
    ),
    (
        "second share server",
        "one sealed seed a hospital and round; what the other server worked out for each check",
        "a vector, an update, the model's sum",
    ),
    (
        "aggregator",
        "plans, models, what the share servers said to one another about each proof, one opened sum a round",
        "one hospital's update, count or share",
    ),
)
_MASKS: tuple[Row, ...] = (
    (
        "aggregator (the one server)",
        "plans, models, one masked vector a hospital and round, what takes the masks off their sum, that sum",
        "one hospital's update or count; masks of a hospital whose update is in the sum",
    ),
)
_ONE_KEY: tuple[Row, ...] = (
    (
        "aggregator (the one server)",
        "plans, models, one ciphertext vector a hospital and round, their sum as the hospitals opened it",
        "the hospitals' key, one hospital's update or count",
    ),
)
_JOINT_KEY: tuple[Row, ...] = (
    (
        "aggregator (the one server)",
        "plans, models, ciphertexts, one partial decryption of the sum a hospital and round, the sum",
        "a secret part of the key, one hospital's update or count",
    ),
)
_SERVERS: dict[str, tuple[Row, ...]] = {
    "additive": _SHARE_SERVERS,
    "pairwise": _MASKS,
    "bfv": _ONE_KEY,
    "ckks": _ONE_KEY,
    "threshold_bfv": _JOINT_KEY,
    "threshold_ckks": _JOINT_KEY,
}
_NOISED = "it still carries that hospital's own DP noise."
_ONE_HOSPITAL_AND_AGGREGATOR = (
    "If the aggregator colludes with any one hospital, or tampers with ciphertexts, it opens an update; "
    f"{_NOISED}"
)
_ALL_BUT_ONE = (
    f"If all hospitals but one collude with the aggregator, the last one's update is left; {_NOISED} "
    "Nothing proves that a hospital formed its part of the key, or its ciphertexts, as agreed."
)
_PARTLY_HIDDEN = (
    "If the aggregator tampers, or colludes with a hospital, some 10 bits of noise are all that hides "
    f"another hospital's part of the key, and with it its update; {_NOISED}"
)
_TOGETHER: dict[str, str] = {
    "additive": f"If all share servers collude they can open one hospital's update; {_NOISED}",
    "pairwise": "If the aggregator colludes with enough hospitals, more than the policy assumes, they open "
    f"another's update; {_NOISED}",
    "bfv": _ONE_HOSPITAL_AND_AGGREGATOR,
    "ckks": _ONE_HOSPITAL_AND_AGGREGATOR,
    "threshold_bfv": _ALL_BUT_ONE,
    "threshold_ckks": _PARTLY_HIDDEN,
}


def seen(scheme: str, norm_bound: float | None) -> tuple[Row, ...]:
    """Every party of a run by this scheme, with or without a norm that is proven."""
    others = "another hospital's patients, update or count"
    keys = "; the key of the job, and the opened sum" if scheme in ("bfv", "ckks") else ""
    return (
        ("hospital (silo agent)", f"its own patients; each round's model; its own ledger{keys}", others),
        *(_SERVERS[scheme] if norm_bound is None else _CHECKING_SHARES),
        (
            "researcher",
            "the job it signed, the final model if the policy releases it to researchers, this evidence",
            "an update, a patient",
        ),
    )


def non_claims(scheme: str, norm_bound: float | None) -> tuple[str, ...]:
    """What a run by this scheme does not show, with or without a norm that is proven."""
    poisoned = "A hospital that lies about its training or poisons its update is not caught by sums alone."
    if norm_bound is not None:
        poisoned = (
            f"A hospital that poisons its update is left out only if it is longer than {norm_bound:g}, and "
            "only while both share servers check honestly; within that it may point anywhere."
        )
    return (
        "Not medical software: the model was trained to show a mechanism and must not advise anyone about a "
        "patient.",
        "Ranges, learning rate and model size were chosen beforehand on these same public data. That tuning "
        "is outside the accounted ε; on private data it would have to be charged, or done elsewhere.",
        "Switzerland holds out three healthy patients: its own AUC is noise. And a federation need not help "
        "everyone: Cleveland alone, judged on its own patients, does about as well.",
        "Differential privacy bounds what the model reveals of one patient's presence; it does not hide "
        "facts about groups, nor make data anonymous by law.",
        poisoned,
        _TOGETHER[scheme],
        "Noise is sampled in floating point; timing, power and other side channels are not covered.",
        "All parties ran on one machine, for show. Separation between operators is real only on separate "
        "machines.",
    )

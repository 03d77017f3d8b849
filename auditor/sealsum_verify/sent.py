"""How many coordinates of the model a round of a job may sum, by the job's own terms, computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from sealsum_verify.messages import Json


def count_sent(terms: Json, number: int) -> int | None:
    """``None`` where the job says nothing of it: then all are.

    A phase that names layers sums these alone; ``sparse`` sums its share of them, rounded up.
    """
    training = terms["training"]
    phase: Json = next((one for one in training.get("phases", []) if number <= one["until"]), {})
    layers, sparse = phase.get("layers", []), training.get("sparse")
    if not layers and sparse is None:
        return None
    sizes = {tensor["name"]: prod(tensor["shape"]) for tensor in terms["model"]["layout"]}
    names = _named(list(sizes), layers) if layers else set(sizes)
    pool = int(sum(sizes[name] for name in names))
    return pool if sparse is None else max(1, ceil(float(sparse["share"]) * pool))


def _named(names: Sequence[str], beginnings: Sequence[str]) -> set[str]:
    """Tensors of these names, or that begin with one and a dot; ``last`` is the layer of the last tensor, and
    ``intercept`` the last tensor where it is a bias."""
    owner = names[-1].rpartition(".")[0]
    found = {name for name in names for start in beginnings if name == start or name.startswith(f"{start}.")}
    if "last" in beginnings:
        found |= {name for name in names if name.rpartition(".")[0] == owner}
    if "intercept" in beginnings and names[-1].rpartition(".")[2] == "bias":
        found.add(names[-1])
    return found

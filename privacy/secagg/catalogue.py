"""Which secure-aggregation schemes exist and what each withstands: one line a scheme."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scheme:
    """A scheme by name, in the words a threat model is written in."""

    name: str
    withstands: str
    colluding_servers: str
    """How many servers may collude, for k servers."""
    bytes_per_parameter: float
    """Upload of a silo, not counting keys and manifest."""
    dropout: str
    validity: frozenset[str]
    """Values of ``require.validity`` that it can enforce."""


SCHEMES: dict[str, Scheme] = {
    "additive": Scheme(
        name="additive",
        withstands="a malicious aggregator, any number of colluding silos, and all share servers but one",
        colluding_servers="k - 1",
        bytes_per_parameter=4.0,
        dropout="costs nothing: a silo without a complete share is not in the sum",
        validity=frozenset({"none"}),
    ),
}

"""What the plan of each scheme must name: servers, threshold and parameters, all computed anew."""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple

from sealsum_verify.encoding import demand, same
from sealsum_verify.messages import Json, Roster
from sealsum_verify.threat_model import hostile

RING_PART = (8 << 20) // 4
"""Elements of a part of 8 MiB: 4 bytes each in the ring, 8 in the field of validity proofs."""
FIELD_PART = (8 << 20) // 8


class Row(NamedTuple):
    """Allow-listed parameters of homomorphic encryption, at 128 bits of security."""

    scheme: str
    elements: int
    """In one ciphertext: its degree, less the slot that counts contributors."""
    largest: int | None
    """The largest sum of an element that it holds, (t − 1)/2; none where the scheme has one row only."""
    ciphertexts: int = 64
    """In one part."""


ROWS = {
    "bfv-2048-40": Row("bfv", 2047, (16760833 - 1) // 2),
    "bfv-2048-54": Row("bfv", 2047, (4294955009 - 1) // 2),
    "ckks-4096-36": Row("ckks", 4095, None),
    "tbfv-8192-168": Row("threshold_bfv", 8191, (8273921 - 1) // 2, 32),
    "tbfv-8192-200": Row("threshold_bfv", 8191, (4294475777 - 1) // 2, 32),
    "tckks-4096-60": Row("threshold_ckks", 4095, None, 32),
}
SCHEMES = ("additive", "pairwise", "bfv", "ckks", "threshold_bfv", "threshold_ckks")


def check_scheme(plan: Json, roster: Roster, entry: str) -> None:
    """(7 f) The plan has what its scheme needs, and nothing of another's:

    additive: all share servers of the roster, two or more. pairwise: a threshold that withstands whom the
    charter's threat model assumes hostile. bfv, ckks, also under a joint key: the row
    that follows from vector and roster.
    """
    scheme = plan["scheme"]
    demand(scheme in SCHEMES, entry, f"plan.scheme: expected one of {', '.join(SCHEMES)}")
    names = roster.of_role("share_server") if scheme == "additive" else []
    slots = [{"server": name, "verify_key": roster.members[name]["verify_key"]} for name in names]
    known = len(names) != 1 and bool(names) == (scheme == "additive") and same(plan["servers"], slots)
    demand(known, entry, "plan.servers are not the roster's, two or more with additive and else none")
    proven = plan["validity"] is not None
    demand(not proven or scheme == "additive", entry, "plan.validity: additive alone has it")
    demand(not proven or "sent" not in plan, entry, "plan.sent: a proof of validity is of all coordinates")
    if scheme == "pairwise":
        least, silos = _least_threshold(plan, roster), len(plan["cohort"])
        fits = plan["threshold"] is not None and least <= plan["threshold"] <= silos
        demand(fits, entry, f"plan.threshold: the threat model demands at least {least} of {silos}")
    else:
        demand(plan["threshold"] is None, entry, "plan.threshold: pairwise alone has it")
    _check_further(plan, entry)
    row = _row(plan, len(roster.of_role("silo")), entry)
    demand(plan["he"] == row, entry, f"plan.he: expected {row}, the row that follows from vector and roster")


def _check_further(plan: Json, entry: str) -> None:
    """Further vectors: distinct, of a scheme that carries them; ``metrics`` exactly where DP has metrics."""
    further, metrics = plan.get("further", []), (plan["dp"] or {}).get("metrics")
    names = [one["name"] for one in further]
    plain = plan["validity"] is None and not plan["scheme"].startswith("threshold_")
    demand(plain or not names, entry, "plan.further: its scheme carries the model's vector only")
    demand(len({*names, "model"}) == len(names) + 1, entry, "plan.further: expected distinct names")
    asked = [] if metrics is None else [("metrics", len(metrics["names"]) + 1, "sum")]
    given = [(one["name"], one["coordinates"], one["opens_to"]) for one in further]
    uncharged = plan["dp"] is not None and given != asked
    carried = [one for one in given if one[0] == "metrics"] == asked
    demand(carried and not uncharged, entry, "plan.further: not the vectors that the plan's dp charges")


def _least_threshold(plan: Json, roster: Roster) -> int:
    """t > c; against a malicious server 2t > n + c (Bonawitz et al. 2017, sections 6.1 and 6.2); never 1."""
    malicious, colluding = hostile(roster.charter["policy_text"])
    honest_majority = (len(plan["cohort"]) + colluding) // 2 + 1
    return max(2, honest_majority if malicious else colluding + 1)


def _row(plan: Json, silos: int, entry: str) -> str | None:
    """The shortest row of the scheme that holds the largest sum of all silos of the roster."""
    rows = {name: row for name, row in ROWS.items() if row.scheme == plan["scheme"]}
    vectors = [plan["vector"], *(one["terms"] for one in plan.get("further", []))]
    for terms in vectors:
        demand(1 <= terms["scale_bits"] <= 30, entry, "plan.vector.scale_bits: expected 1 to 30")
        per = terms.get("per_element", 1)
        # Coordinates that share an element: added exactly, in fields that the sum of all silos cannot leave.
        steps = 2 * silos * ceil(float(terms["coordinate_bound"]) * 2.0 ** terms["scale_bits"])
        packs = 1 < per <= 8 and not rows and plan["validity"] is None and steps < 1 << (32 // per)
        wrong = "plan.vector.per_element: not one that this scheme and so many silos can carry"
        demand(per == 1 or (packs and terms is plan["vector"]), entry, wrong)
    tops = [floor(max(float(t["coordinate_bound"]), 1.0) * 2.0 ** t["scale_bits"]) + 1 for t in vectors]
    worst = silos * max(tops)
    fitting = [name for name, row in rows.items() if row.largest is None or worst <= row.largest]
    demand(bool(fitting) or not rows, entry, "plan.vector: no row of the scheme holds its largest sum")
    return fitting[0] if rows else None


def further_lengths(plan: Json) -> list[Json]:
    """Name and elements of each vector beside the model's: coordinates, and a weight before a mean."""
    return [
        {"name": one["name"], "length": one["coordinates"] + (one["opens_to"] == "mean")}
        for one in plan.get("further", [])
    ]


def model_length(plan: Json) -> int:
    """Elements of the model's vector: of the coordinates that are sent, several to one where they are packed,
    and of one weight."""
    coordinates = int(plan.get("sent", plan["parameters"]))
    return -(-coordinates // max(1, int(plan["vector"].get("per_element", 1)))) + 1


def part_count(plan: Json, elements: int = RING_PART) -> int:
    """Parts of all vectors of a round: of the plan's parameters and one weight, then of the further ones."""
    lengths = [model_length(plan), *(one["length"] for one in further_lengths(plan))]
    return sum(-(-length // elements) for length in lengths)


def ciphertext_parts(plan: Json) -> int:
    """Parts of these vectors in ciphertexts of the plan's row."""
    return part_count(plan, ROWS[plan["he"]].ciphertexts * ROWS[plan["he"]].elements)

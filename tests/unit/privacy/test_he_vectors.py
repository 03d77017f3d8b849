"""The wire format is pinned: another implementation can open these sums, and must refuse these parts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privacy.errors import PeerFault
from privacy.plan import VectorTerms
from privacy.secagg.he.framing import he_stretch
from privacy.secagg.he.keys import HeKey, KeyUse, restore_key
from privacy.secagg.he.parameters import parameters_named
from privacy.secagg.he.silo_half import HeSiloHalf
from privacy.secagg.he.sum_half import HeSumHalf

VECTORS = Path(__file__).parents[2] / "vectors"
ROWS: dict[str, Any] = {
    row["parameters"]: row for row in json.loads((VECTORS / "he.json").read_text())["rows"]
}
BAD = json.loads((VECTORS / "bad_he.json").read_text())["cases"]


def key_of(row: dict[str, Any]) -> HeKey:
    use = KeyUse(row["federation"], row["epoch"], row["job"], parameters_named(row["parameters"]))
    return restore_key(use, base64.b64decode(row["key"]))


def half_of(row: dict[str, Any]) -> HeSiloHalf:
    terms = VectorTerms(coordinate_bound=float(row["coordinate_bound"]), scale_bits=row["scale_bits"])
    key = key_of(row)
    return HeSiloHalf(key, key.use, terms, len(row["elements"][0]), row["cohort"])


def total(row: dict[str, Any], parts: list[bytes]) -> bytes:
    piece = he_stretch(parameters_named(row["parameters"]), 0, len(row["elements"][0]))
    return HeSumHalf(row["parameters"], row["cohort"]).total(parts, piece)


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_pinned_keys_uploads_and_sums_are_read_as_before(row: dict[str, Any]) -> None:
    assert key_of(row).id == row["id"]
    uploads = [base64.b64decode(upload) for upload in row["uploads"]]
    summed = total(row, uploads)
    assert summed == base64.b64decode(row["sum"])
    assert np.array_equal(half_of(row).open(0, summed, 2).view(np.int32), np.sum(row["elements"], axis=0))
    for upload, elements in zip(uploads, row["elements"], strict=True):
        assert half_of(row).open(0, total(row, [upload]), 1).view(np.int32).tolist() == elements


def edited(row: dict[str, Any], case: dict[str, Any]) -> bytes:
    """The good bytes with one fault."""
    other = next(each for name, each in ROWS.items() if name != row["parameters"])
    sources = {
        "other": base64.b64decode(other["uploads"][1]),
        "key": base64.b64decode(row["key"]),
        "alone": total(row, [base64.b64decode(row["uploads"][0])]),
        "sum": base64.b64decode(row["sum"]),
        "upload": base64.b64decode(row["uploads"][1]),
    }
    part = bytearray(sources[case.get("from", case["in"])])
    if "set" in case:
        where, value = case["set"]
        where %= len(part)
        part[where : where + len(value) // 2] = bytes.fromhex(value)
    return bytes(part[: case.get("keep")]) + bytes.fromhex(case.get("append", ""))


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
@pytest.mark.parametrize("case", BAD, ids=[case["name"] for case in BAD])
def test_faulty_parts_are_refused(row: dict[str, Any], case: dict[str, Any]) -> None:
    part = edited(row, case)

    def read() -> None:
        if case["in"] == "sum":
            half_of(row).open(0, part, 2)
        else:
            total(row, [base64.b64decode(row["uploads"][0]), part])

    with pytest.raises(PeerFault, match=case["refusal"]):
        read()

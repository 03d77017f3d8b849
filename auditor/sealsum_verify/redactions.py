"""Check 14: what was taken out of a pack is listed, and nothing that is listed is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from sealsum_verify.encoding import demand
from sealsum_verify.messages import read_document

ENTRY = "REDACTIONS.json"
NEEDED = frozenset(
    {"context", "decision", "digest", "job", "job_digest", "ledger_head", "model", "root", "round", "silo"}
    | {"size", "state", "survivors"}
)
"""Fields that checks 10, 11 and 13 find entries by: one without them would hide something that happened."""


def check_redactions(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """(14) Returns what is withheld, a line each; its content is verified by nobody:

    (a) each log's fields of which only the commitment is left are listed, by name and number, and none is one
    that other checks rest on; (b) a file that is listed as withheld is one of those that may be, and
    is not in the pack.
    """
    listed = read_document(files[ENTRY], "redactions", ENTRY)["redactions"]
    found = Counter(
        (name, field)
        for name, raw in files.items()
        if name.startswith("log/") and name.endswith(".jsonl")
        for line in raw.splitlines()
        for field, value in json.loads(line).get("fields", {}).items()
        if "digest" in value
    )
    fields = {(one["entry"], one["field"]): one["count"] for one in listed if one["field"] != "*"}
    whole = [one["entry"] for one in listed if one["field"] == "*"]
    demand(len(fields) + len(set(whole)) == len(listed), ENTRY, "something is listed twice")
    # (a)
    for place in sorted(found.keys() | fields.keys()):
        demand(place[1] not in NEEDED, place[0], f"{place[1]} is redacted, and rounds are followed by it")
        same = found[place] == fields.get(place, 0)
        demand(same, ENTRY, f"{place[0]} has {found[place]} fields {place[1]} redacted, listed otherwise")
    # (b)
    for name in whole:
        demand(name.startswith("silos/") and name not in files, ENTRY, f"{name} cannot be withheld")
    lines = [f"{entry}: field {field} of {count} entries" for (entry, field), count in sorted(fields.items())]
    return (*lines, *(f"{name}: the whole file" for name in sorted(whole)))

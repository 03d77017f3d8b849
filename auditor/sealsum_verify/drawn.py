"""Check 7 (g): where a job asks for a part of the silos, the cohort was drawn as it says, and not chosen."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

from sealsum_verify.encoding import demand
from sealsum_verify.messages import Json, Roster
from sealsum_verify.threat_model import least_silos


def check_cohort(plan: Json, terms: Json, roster: Roster, entry: str) -> None:
    """The silos that were here, by SHA-256("sealsum/invited/v1" ‖ 0x00 ‖ job ‖ round ‖ silo), lowest first,
    one of each institution before a second one of any: the cohort is the first so many of them.

    So many: what the round's phase asks for, and what job and threat model ask for at least.
    """
    number, pool = int(plan["round"]), list(plan.get("pool", []))
    phase: Json = next((one for one in terms["training"].get("phases", []) if number <= one["until"]), {})
    share = float(phase.get("silos_share", "1"))
    if share >= 1 and "silos" not in phase:
        demand(not pool, entry, "plan.pool: the round asks for every silo")
        return
    demand(bool(pool) and pool == sorted(set(pool)), entry, "plan.pool: expected distinct silos, sorted")
    entities = {}
    for silo in pool:
        roster.key(silo, "silo", entry)
        entities[silo] = roster.members[silo]["legal_entity"]
    said = b"sealsum/invited/v1\x00" + bytes.fromhex(plan["job_digest"]) + number.to_bytes(8, "big")
    seen: Counter[str] = Counter()
    places = []
    for rank, silo in sorted((hashlib.sha256(said + silo.encode()).digest(), silo) for silo in pool):
        places.append((seen[entities[silo]], rank, silo))
        seen[entities[silo]] += 1
    asked = phase["silos"] if "silos" in phase else math.ceil(share * len(pool))
    count = max(int(asked), terms["min_silos"], least_silos(roster.charter["policy_text"]))
    drawn = sorted(silo for _, _, silo in sorted(places)[:count])
    invited = [member["silo"] for member in plan["cohort"]]
    demand(drawn == invited, entry, f"plan.cohort: the draw invites {', '.join(drawn)}")

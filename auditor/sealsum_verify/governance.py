"""Who rules the federation, and who is in it: the officers' versions, and the charter they endorsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sealsum_verify.encoding import check_signature, demand, digest_of
from sealsum_verify.messages import Json, Roster, peek, read_document, signed_bytes

OFFICERS, CHARTER, PREVIOUS = "who/officers.json", "who/charter.json", "who/previous.json"


def check_charter(files: Mapping[str, bytes], pinned: str | None) -> tuple[Roster, str]:
    """The roster, and the digest of the officers it rests on: the pinned ones, or else the pack's own last.

    (a) Officers' versions start at 1; each is endorsed by its own threshold and that of the one before, and
    names keep their keys; (b) the pinned version is one of them; (c) the threshold of the last endorsed the
    charter, which names them; (d) its members are distinct in id and key, none has an officer's key or a
    revoked one, and one is the aggregator; (e) the charter before it, if shown, is the one that it names.
    """
    documents = read_document(files[OFFICERS], "[endorsed]", OFFICERS)
    charter_document = read_document(files[CHARTER], "endorsed", CHARTER)
    charter = peek(charter_document, "charter", CHARTER)
    context = digest_of("sealsum/federation-id/v1", {"federation": charter["federation"]})
    # (a)
    versions: list[Json] = []
    for number, document in enumerate(documents, 1):
        where = f"{OFFICERS} version {number}"
        officers = peek(document, "officers", where)
        _check_officers(officers, charter["federation"], number, where)
        before = versions[-1:]
        moved = [
            name for old in before for name, key in keys(old).items() if keys(officers).get(name, key) != key
        ]
        demand(not moved, where, f"{', '.join(moved)}: expected the key of the version before")
        _check_endorsed(document, "officers", context, [*before, officers], where)
        versions.append(officers)
    demand(bool(versions), OFFICERS, "it names no officers")
    # (b)
    digests = [digest_of("sealsum/officers/v1", officers) for officers in versions]
    demand(pinned is None or pinned in digests, OFFICERS, "the officers are not the pinned ones")
    # (c)
    _check_endorsed(charter_document, "charter", context, versions[-1:], CHARTER)
    demand(charter["officers"] == digests[-1], CHARTER, "it names other officers than the last")
    # (d)
    members = {member["id"]: member for member in charter["members"]}
    member_keys = {member["verify_key"] for member in charter["members"]}
    distinct = len(members) == len(member_keys) == len(charter["members"])
    demand(distinct, CHARTER, "expected members of distinct ids and keys")
    barred = member_keys & {*keys(versions[-1]).values(), *charter["revoked"]}
    demand(not barred, CHARTER, "a member has an officer's key, or a revoked one")
    roster = Roster(digest_of("sealsum/charter/v1", charter), charter, members)
    demand(len(roster.of_role("aggregator")) == 1, CHARTER, "expected one aggregator")
    # (e)
    if PREVIOUS in files:
        before = peek(read_document(files[PREVIOUS], "endorsed", PREVIOUS), "charter", PREVIOUS)
        named = digest_of("sealsum/charter/v1", before) == charter["previous"]
        demand(named, PREVIOUS, "it is not the charter that this one replaced")
    return roster, pinned or digests[-1]


def keys(officers: Json) -> dict[str, str]:
    """Verify key by officer."""
    return {officer["name"]: officer["verify_key"] for officer in officers["officers"]}


def _check_officers(officers: Json, federation: str, number: int, where: str) -> None:
    """Distinct officers of this federation; a possible number, not all of one institution, is enough."""
    listed: Sequence[Any] = officers["officers"]
    own = (officers["federation"], officers["version"]) == (federation, number)
    demand(own, where, f"expected version {number} of {federation}")
    distinct = len(listed) == len(keys(officers)) == len(set(keys(officers).values()))
    demand(distinct, where, "expected officers of distinct names and keys")
    threshold, said = officers["threshold"], officers["one_institution"]
    demand(1 <= threshold <= len(listed), where, "expected a threshold of at least 1 and at most all")
    entities = [" ".join(officer["legal_entity"].casefold().split()) for officer in listed]
    alone = max(entities.count(entity) for entity in entities) >= threshold
    demand(said == "allowed" or not alone, where, "one institution alone reaches the threshold")


def _check_endorsed(document: Json, kind: str, context: str, by: Sequence[Json], where: str) -> None:
    """Each signature is an officer's over exactly this document; each set in ``by`` reaches its threshold."""
    bound = (document["kind"], document["context"]) == (kind, context)
    demand(bound, where, f"expected {kind} of this federation")
    known = {name: key for officers in by for name, key in keys(officers).items()}
    for name, signature in document["signatures"].items():
        demand(name in known, where, f"{name} signed it, and is no officer")
        message = signed_bytes(kind, context, name, "all", document["body"].encode())
        check_signature(known[name], message, signature, where, f"{kind} endorsed by {name}")
    for officers in by:
        count, threshold = len(keys(officers).keys() & document["signatures"].keys()), officers["threshold"]
        demand(count >= threshold, where, f"expected {threshold} of its officers to sign, got {count}")

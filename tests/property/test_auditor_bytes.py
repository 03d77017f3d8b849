"""No byte and no value of a pack can change unnoticed, and nothing in a pack makes the verifier crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sealsum_verify.archive import write_archive
from sealsum_verify.encoding import canonical, parse
from sealsum_verify.verify import verify_pack

from privacy.canonical import canonical_bytes
from privacy.ids import PartyId
from privacy.wire.envelope import signed_bytes
from sealsum.evidence_archive import canonical_zip
from tests.evidence_pack import Records, files_of, resigned, shared_pack, shared_records
from tests.evidence_schemes import PROTOCOLS
from tests.federation import Federation

WORD_OF_THE_SIGNER = {"software/versions.json", "software/sbom.cdx.json", "manifest.json"}
"""Of the documents; beside them the texts for people."""
PROSE = {
    "records_per_unit",
    "sampling",
    "accountant",
    "composition",
    "delta_judged",
    "resets",
    "model",
    "randomness",
    "secagg",
    "limits",
}
"""Of the claim: what is said and not computed."""

scalars = st.none() | st.booleans() | st.integers(-3, 2**53 - 1) | st.text(max_size=8)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=2) | st.dictionaries(st.text(max_size=3), v, max_size=2)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Path of every value in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@settings(max_examples=100)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_flipping_any_byte_is_noticed(position: int, mask: int) -> None:
    raw = bytearray(shared_pack())
    raw[position % len(raw)] ^= mask
    report = verify_pack(bytes(raw))
    assert report.fault is not None


@pytest.mark.slow
def test_flipping_each_byte_of_a_small_pack_is_noticed() -> None:
    federation = Federation(silos=2)
    records = Records(federation, federation.job_spec(rounds=1, min_silos=2))
    records.add_round(1, job_state="finished")
    # What is for people would make four of five bytes.
    short = {"report.html": b"<p>", "report.pdf": b"%PDF", "software/sbom.cdx.json": b"{}"}
    pack = resigned({**files_of(records.pack()), **short}, records)
    assert verify_pack(pack).verified
    for position in range(len(pack)):
        raw = bytearray(pack)
        raw[position] ^= 1 << position % 8
        assert not verify_pack(bytes(raw)).verified, position


@settings(max_examples=100)
@given(st.data())
def test_cutting_or_repeating_any_stretch_is_noticed(data: st.DataObject) -> None:
    pack = shared_pack()
    start = data.draw(st.integers(0, len(pack) - 1))
    end = data.draw(st.integers(start + 1, len(pack)))
    assert not verify_pack(pack[:start] + pack[end:]).verified
    assert not verify_pack(pack[:end] + pack[start:]).verified


@settings(max_examples=100)
@given(st.data())
def test_changing_any_value_is_noticed_although_the_manifest_is_signed_anew(data: st.DataObject) -> None:
    files = files_of(shared_pack())
    documents = {name for name in files if name.endswith((".json", ".jsonl"))} - WORD_OF_THE_SIGNER
    name = data.draw(st.sampled_from(sorted(documents)))
    lines = files[name].split(b"\n") if name.endswith(".jsonl") else [files[name]]
    number = data.draw(st.integers(0, max(0, len([line for line in lines if line]) - 1)))
    document = json.loads(lines[number])
    path = data.draw(st.sampled_from([p for p in places(document) if not (p and p[0] in PROSE)]))
    new = replaced(document, path, data.draw(values))
    if canonical_bytes_or_none(new) in (None, lines[number]) or (name == "dp/claim.json" and not path):
        return
    lines[number] = canonical_bytes(new)
    report = verify_pack(resigned({**files, name: b"\n".join(lines)}, shared_records()))
    assert report.fault is not None, (name, path)


def canonical_bytes_or_none(value: Any) -> bytes | None:
    """Encodings that do not exist (top-level scalars) are no attack."""
    return canonical_bytes(value) if isinstance(value, dict | list) else None


@settings(max_examples=100)
@given(st.data())
def test_whatever_any_party_signs_the_verifier_judges_and_never_crashes(data: st.DataObject) -> None:
    """All keys in one adversary's hand: any value of any signed body is replaced and signed anew."""
    protocol = data.draw(st.sampled_from(PROTOCOLS))
    records = shared_records(protocol)
    files = files_of(shared_pack(protocol))
    document = json.loads(files["rounds/0001.json"])
    envelopes = [
        p for p in places(document) if p and isinstance(at(document, p), dict) and "body" in at(document, p)
    ]
    where = data.draw(st.sampled_from(envelopes))
    envelope = at(document, where)
    body = json.loads(envelope["body"])
    new = replaced(body, data.draw(st.sampled_from(places(body))), data.draw(values))
    raw = canonical(new)
    signed = signed_bytes(envelope["kind"], envelope["context"], envelope["sender"], "all", raw)
    signature = records.federation.key(PartyId(envelope["sender"])).sign(signed).hex()
    forged = envelope | {"body": raw.decode(), "signature": signature}
    files["rounds/0001.json"] = canonical_bytes(replaced(document, where, forged))
    report = verify_pack(resigned(files, records))
    assert report.verified or report.fault is not None


@settings(max_examples=100)
@given(st.data())
def test_changing_any_value_of_a_round_of_any_scheme_is_noticed(data: st.DataObject) -> None:
    protocol = data.draw(st.sampled_from(PROTOCOLS))
    files = files_of(shared_pack(protocol))
    document = json.loads(files["rounds/0001.json"])
    path = data.draw(st.sampled_from(places(document)[1:]))
    new = replaced(document, path, data.draw(values))
    if canonical_bytes(new) == files["rounds/0001.json"]:
        return
    files["rounds/0001.json"] = canonical_bytes(new)
    assert verify_pack(resigned(files, shared_records(protocol))).fault is not None, path


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


keys = st.text(st.characters(max_codepoint=0xD7FF), max_size=5)
documents = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(keys, v, max_size=3), max_leaves=20
)


@given(st.dictionaries(keys, documents, max_size=4))
def test_both_sides_write_the_same_canonical_json(document: dict[str, Any]) -> None:
    raw = canonical_bytes(document)
    assert canonical(document) == raw
    assert parse(raw, "x") == document


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}(/[A-Za-z0-9][A-Za-z0-9._-]{0,8})?", fullmatch=True)


@given(st.dictionaries(names, st.binary(max_size=64), max_size=6))
def test_both_sides_write_the_same_archive(files: dict[str, bytes]) -> None:
    assert canonical_zip(files) == write_archive(files)

"""Any single change of a pack by anybody without the signers' keys is refused, and the place is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sealsum_verify.archive import write_archive
from sealsum_verify.verify import Report, verify_pack

from privacy.canonical import canonical_bytes, sha256_hex
from tests.evidence_pack import files_of, resigned, shared_pack, shared_records

OFFICERS = shared_records().federation.officers.digest
FEW = settings(max_examples=40, deadline=None)
LINES = ("log/", "dp/ledger/")
SIGNED = ("manifest.json", "manifest.sig")


def contents() -> dict[str, bytes]:
    return {name: raw for name, raw in files_of(shared_pack()).items() if name not in SIGNED}


def relisted(files: dict[str, bytes]) -> bytes:
    """The archive with each digest of the manifest made right again; only its signature cannot be."""
    whole = files_of(shared_pack())
    manifest = json.loads(whole["manifest.json"])
    manifest["files"] = {name: sha256_hex(raw) for name, raw in files.items()}
    return write_archive(
        {**files, "manifest.json": canonical_bytes(manifest), "manifest.sig": whole["manifest.sig"]}
    )


def refused(pack: bytes) -> Report:
    report = verify_pack(pack, OFFICERS)
    assert not report.verified
    assert report.fault is not None
    assert report.fault.entry
    return report


def one_file(data: st.DataObject, among: tuple[str, ...] = ("",)) -> str:
    return data.draw(st.sampled_from(sorted(name for name in contents() if name.startswith(among))))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, item in items for leaf in leaves(item, (*path, key))]
    return below or [path]


def other(value: Any) -> Any:
    """A value of the same type, as a forger would write it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value + "0" if isinstance(value, str) else "0"


@FEW
@given(st.data())
def test_any_byte_of_any_file(data: st.DataObject) -> None:
    files, name = contents(), one_file(data)
    if not files[name]:
        return
    place = data.draw(st.integers(0, len(files[name]) - 1))
    raw = bytearray(files[name])
    raw[place] ^= data.draw(st.integers(1, 255))
    plain = refused(write_archive({**files_of(shared_pack()), name: bytes(raw)}))
    assert plain.fault is not None
    assert plain.fault.entry == name  # the manifest has another digest of it
    refused(relisted({**files, name: bytes(raw)}))


@FEW
@given(st.data())
def test_any_file_dropped_added_or_swapped(data: st.DataObject) -> None:
    files, name, second = contents(), one_file(data), one_file(data)
    kind = data.draw(st.sampled_from(["dropped", "added", "swapped"]))
    if kind == "dropped":
        changed = {other: raw for other, raw in files.items() if other != name}
    elif kind == "added":
        changed = {**files, name + ".copy": files[name]}
    elif files[name] == files[second]:
        return
    else:
        changed = {**files, name: files[second], second: files[name]}
    refused(relisted(changed))


@FEW
@given(st.data())
def test_any_leaf_of_any_document_although_an_insider_signs_the_manifest_anew(data: st.DataObject) -> None:
    files = contents()
    name = one_file(data, ("who/", "job/", "data/", "rounds/", "dp/accountant", *LINES))
    lines = files[name].split(b"\n") if name.endswith(".jsonl") else [files[name]]
    number = data.draw(st.integers(0, len([line for line in lines if line]) - 1))
    if not name.endswith((".json", ".jsonl")):
        return
    document = json.loads(lines[number])
    path = data.draw(st.sampled_from(leaves(document)))
    if not path or at(document, path) in ({}, []):
        return
    at(document, path[:-1])[path[-1]] = other(at(document, path))
    lines[number] = canonical_bytes(document)
    report = refused(resigned({**files_of(shared_pack()), name: b"\n".join(lines)}, shared_records()))
    assert report.fault is not None
    # Named is the file, or what a document that others are bound to no longer fits.
    assert report.passed >= 2


@FEW
@given(st.data())
def test_any_line_of_a_log_or_ledger_dropped_moved_or_repeated_by_an_insider(data: st.DataObject) -> None:
    files = contents()
    name = data.draw(
        st.sampled_from(sorted(n for n in files if n.startswith(LINES) and n.endswith(".jsonl")))
    )
    lines = files[name].splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 2))
    kind = data.draw(st.sampled_from(["dropped", "moved", "repeated"]))
    if kind == "dropped":
        changed = lines[:number] + lines[number + 1 :]
    elif kind == "moved":
        changed = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
    else:
        changed = lines[: number + 1] + lines[number:]
    report = refused(resigned({**files_of(shared_pack()), name: b"".join(changed)}, shared_records()))
    assert report.fault is not None
    assert report.fault.entry.startswith(name)


@FEW
@given(st.data())
def test_any_log_or_ledger_cut_short(data: st.DataObject) -> None:
    files = contents()
    name = data.draw(
        st.sampled_from(sorted(n for n in files if n.startswith(LINES) and n.endswith(".jsonl")))
    )
    end = data.draw(st.integers(0, len(files[name]) - 1))
    refused(relisted({**files, name: files[name][:end]}))


@pytest.mark.parametrize("name", SIGNED)
def test_the_manifest_itself(name: str) -> None:
    whole = files_of(shared_pack())
    changed = write_archive({**whole, name: whole[name].replace(b"1", b"2")})
    assert refused(changed).passed < 4

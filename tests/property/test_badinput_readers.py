"""For all texts and bytes: a reader gives a value or an error of ours, and stays in bounds."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sealsum_verify.archive import read_archive
from sealsum_verify.encoding import Fault
from sealsum_verify.encoding import parse as verifier_parse

from aggregator.settings import AggregatorSettings, load_settings
from policies.loader import load_threat_model
from policies.profiles import PROFILES, profile_text
from privacy.canonical import Frozen, Real, parse_canonical
from privacy.chain import parse_entry
from privacy.errors import ConfigurationError, MalformedMessage, SealsumError
from privacy.instance import parse_instance
from privacy.schema import CategoricalFeature, DataSchema, Label, NumericFeature
from privacy.transparency.checkpoint import parse_checkpoint, parse_signature_line
from privacy.transparency.leaf import parse_record
from privacy.wire.envelope import parse_envelope, parse_envelopes
from sealsum.evidence_archive import canonical_zip, read_zip
from sealsum.job_file import JobFile
from sealsum.yaml_file import read_yaml_file
from silo_agent.data.csv_table import read_csv_table
from silo_agent.ledger.copies import read_copy
from silo_agent.settings import read_settings
from tests.bad_input import JSON, altered
from tests.silo_yaml import approving, registered

FEW = settings(max_examples=25, suppress_health_check=list(HealthCheck))
DEEP = 100_000


def only_ours(read: Callable[[], object]) -> None:
    """Read; whatever is raised is an error that somebody wrote a sentence for."""
    with contextlib.suppress(SealsumError, Fault):
        read()


# --- bytes of peers ---

READERS: dict[str, Callable[[bytes], object]] = {
    "canonical": lambda raw: parse_canonical(raw, 1 << 20),
    "envelope": parse_envelope,
    "envelopes": parse_envelopes,
    "entry": parse_entry,
    "record": parse_record,
    "verifier": lambda raw: verifier_parse(raw, "x"),
    "archive": read_archive,
    "zip": lambda raw: read_zip(raw, "x"),
    "checkpoint": lambda raw: parse_checkpoint(raw.decode("latin-1")),
    "signature line": lambda raw: parse_signature_line(raw.decode("latin-1")),
    "instance": lambda raw: parse_instance(raw.decode("latin-1")),
}


@pytest.mark.parametrize("reader", READERS)
@FEW
@given(
    raw=st.binary(max_size=80)
    | JSON.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    | st.text('PK\x03\x04\x01\x02{}[]",:0-9a-f\n +', max_size=60).map(lambda text: text.encode("latin-1"))
)
@example(raw=b"[" * DEEP)
@example(raw=b'{"a":' * DEEP)
@example(raw=b"9" * 5000)
@example(raw=b'"\\ud800"')
@example(raw=b'{"\\ud800":1,"\xc3\xa9":1}')
@example(raw=b"1e999")
@example(raw=b"NaN")
def test_bytes_of_peers_are_read_or_refused(reader: str, raw: bytes) -> None:
    only_ours(lambda: READERS[reader](raw))


class _Number(Frozen):
    value: Real


@pytest.mark.parametrize("value", [10**400, -(10**400), "1e999", "nan", "9" * 5000])
def test_a_number_beyond_all_floats_is_a_fault_of_its_field(value: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        _Number.model_validate({"value": value})


# --- ZIP bombs ---


def bomb(entries: int = 1, size: int = 4 << 20) -> bytes:
    """Packed zeros: a thousand times smaller than they read."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(entries):
            archive.writestr(f"dp/ledger/silo-{number}.jsonl", b"\0" * size)
    return raw.getvalue()


def overlapping(times: int, size: int) -> bytes:
    """A directory that names one stored entry many times: what is read is many times the file."""
    name, content = "a" * 8, b"x" * size
    raw = canonical_zip({name: content})
    end = raw.rindex(b"PK\x05\x06")
    start = raw.index(b"PK\x01\x02")
    row = raw[start:end]
    rows = row * times
    count = times.to_bytes(2, "little") * 2
    tail = raw[end : end + 8] + count + len(rows).to_bytes(4, "little") + raw[end + 16 :]
    return raw[:start] + rows + tail


def encrypted() -> bytes:
    """Its flags say that a password is needed."""
    raw = bytearray(canonical_zip({"a": b"b"}))
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    return bytes(raw)


@pytest.mark.parametrize(
    "raw", [bomb(), overlapping(500, 1 << 16), encrypted()], ids=["packed", "overlapping", "encrypted"]
)
def test_a_pack_is_never_read_into_more_than_it_weighs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw: bytes
) -> None:
    held: list[int] = []
    read = zipfile.ZipFile.read

    def counted(archive: zipfile.ZipFile, name: str) -> bytes:
        content = read(archive, name)
        held.append(len(content))
        return content

    monkeypatch.setattr(zipfile.ZipFile, "read", counted)
    with pytest.raises(Fault):
        read_archive(raw)
    with pytest.raises(MalformedMessage):
        read_zip(raw, "pack")
    pack = tmp_path / "pack.zip"
    pack.write_bytes(raw)
    with pytest.raises(SealsumError):
        read_copy(pack, "ledger/silo-0/cardio", "0" * 64)
    assert sum(held) <= len(raw)


@FEW
@given(data=st.data())
def test_a_damaged_pack_is_refused_and_never_a_crash(data: st.DataObject, tmp_path_factory: Any) -> None:
    raw = bytearray(canonical_zip({"dp/ledger/silo-0.jsonl": b"{}\n", "manifest.json": b"{}"}))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    pack = tmp_path_factory.getbasetemp() / "damaged.zip"
    pack.write_bytes(cut)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile's, of two entries under one name
        only_ours(lambda: read_zip(cut, "pack"))
    only_ours(lambda: read_archive(cut))
    only_ours(lambda: read_copy(pack, "ledger/silo-0/cardio", "0" * 64))


# --- files that somebody wrote by hand ---

PIECES = (
    *("a: ", "- ", "\n", "  ", "{", "}", "[", "]", "&x ", "*x", "<<: ", "? ", "| ", ">", "\t", "'", '"', "#"),
    *(
        "!!python/object/apply:os.system ",
        "!!binary ",
        "!!set ",
        "!!omap ",
        "!!int ",
        "!!float ",
        "!!timestamp ",
    ),
    *(
        "2024-13-45",
        "2001-12-14t21:59:43.10-99:99",
        "0001-01-01T00:00:00+23:59",
        "0x",
        "0b",
        "0o9",
        "1:99:99",
    ),
    *(".inf", ".nan", "1e999", "9" * 5000, "~", "true", "%YAML 9.9\n", "--- ", "... ", "\x00", "\ufeff", "é"),
)
YAML = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
NASTY = (
    "a: 2024-13-45",
    "a: 0x",
    "a: " + "9" * 5000,
    "a: !!int x",
    "a: !!binary é",
    "? {a: b}\n: c",
    "? [a]\n: c",
    "[" * 5000,
    "a: " + "{a: " * 5000,
    "a: &x [*x]",
    "state_dir: &a [1,2]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n"
    "g: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g]\ni: &i [*h,*h,*h,*h,*h,*h,*h,*h]\n"
    "datasets: *i\n",
    "1: 2\ntrue: 3\nnull: 4\n2024-01-01: 5",
    'state_dir: "\\0"\nlisten: "\\0"',
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
)

SILO = {
    "state_dir": "state",
    "aggregator_url": "https://aggregator.test",
    "datasets": {"cardio": registered()},
    "approval_rules": approving("cardio"),
}
SERVER = {"state_dir": "state", "listen": "127.0.0.1:0"}
FEATURES = [{"kind": "numeric", "column": "age", "low": 20, "high": 90, "impute": 55}]
JOB = {
    "job": "heart-risk",
    "purpose": "predict heart disease",
    "dataset": "cardio",
    "data": {"features": FEATURES, "label": {"column": "num", "threshold": 0}, "patient_id": "patient"},
    "model": {"adapter": "mlp", "hidden": [16], "seed": 1},
    "training": {"server_learning_rate": 0.5},
    "dp": {"unit": "patient", "sample_rate": 0.2, "target_epsilon": 3.0, "clip_l2": 1.0, "delta": 0.00001},
    "rounds": 200,
    "min_silos": 3,
}
FILES: dict[str, tuple[Any, Callable[[Path], object]]] = {
    "silo.yaml": (SILO, read_settings),
    "server.yaml": (SERVER, lambda path: load_settings(path, AggregatorSettings)),
    "job.yaml": (JOB, lambda path: read_yaml_file(path, JobFile)),
}


@pytest.mark.parametrize("kind", FILES)
@FEW
@given(data=st.data())
def test_a_file_written_by_hand_is_read_or_its_fault_named(
    kind: str, data: st.DataObject, tmp_path_factory: Any
) -> None:
    tree, read = FILES[kind]
    text = data.draw(YAML | altered(tree).map(lambda one: yaml.safe_dump(one, allow_unicode=True)))
    path = tmp_path_factory.getbasetemp() / kind
    path.write_text(text)
    only_ours(lambda: read(path))


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_trips_readers_of_yaml_has_its_fault_named(kind: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=kind) as refused:
        FILES[kind][1](path)
    assert len(str(refused.value)) < 20_000


@FEW
@given(data=st.data())
def test_a_policy_is_read_or_its_faults_are_findings(data: st.DataObject) -> None:
    text = profile_text(data.draw(st.sampled_from(sorted(PROFILES))))
    lines = text.splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    new = data.draw(YAML | st.just("") | st.sampled_from(lines))
    mixed = "".join([*lines[:place], new, *lines[place + 1 :]])
    only_ours(lambda: load_threat_model(data.draw(st.sampled_from([mixed, new]))))


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_a_policy_that_trips_readers_of_yaml_is_refused(text: str) -> None:
    with pytest.raises(SealsumError):
        load_threat_model(text)


# --- tables ---

SCHEMA = DataSchema(
    features=(
        NumericFeature(column="age", low=0, high=100, impute=50),
        CategoricalFeature(column="sex", categories=("f", "m")),
    ),
    label=Label(column="num", threshold=0),
    patient_id="patient",
)
CELLS = (
    "1",
    "f",
    "m",
    "",
    "nan",
    "inf",
    "1e999",
    "9" * 5000,
    '"',
    ",",
    "\n",
    "\r",
    "\x00",
    "é",
    "0x1",
    "1_0",
    "٣",
)


@FEW
@given(
    rows=st.lists(st.sampled_from(CELLS), max_size=16).map(",".join).map(str.encode) | st.binary(max_size=60),
    header=st.booleans(),
)
@example(rows=b'p,"' + b"x" * 200_000 + b'",f,0', header=True)
@example(rows=b'p,"1', header=True)
@example(rows=b"p,1,f,0\xff", header=True)
@example(rows=b"p,\x00,f,0", header=True)
def test_a_table_is_read_or_refused_by_row_and_column(
    rows: bytes, header: bool, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes((b"patient,age,sex,num\n" if header else b"") + rows)
    only_ours(lambda: read_csv_table(path, SCHEMA, "record"))

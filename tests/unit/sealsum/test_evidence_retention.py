"""Packs are kept as long as their threat model says, and as long as somebody holds them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from policies.findings import PolicyRefusal
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import ConfigurationError, Conflict, MalformedMessage, NotFound
from sealsum.evidence_archive import canonical_zip
from sealsum.retention_commands import expire, hold
from tests.federation import demo_policy_text


def put(archive: Path, job: str, age_days: int, evidence_days: int = 2190) -> Path:
    """A pack of that age; only what retention reads is in it."""
    made = datetime.now(UTC) - timedelta(days=age_days)
    policy, replaced = re.subn(
        r"retention: \{evidence_days: \d+\}",
        f"retention: {{evidence_days: {evidence_days}}}",
        demo_policy_text(),
    )
    assert replaced == 1
    charter = canonical_bytes({"body": canonical_bytes({"policy_parents": []}).decode()})
    manifest = canonical_bytes({"job": job, "created_at": made.strftime("%Y-%m-%dT%H:%M:%SZ")})
    path = archive / f"evidence-{job}.zip"
    path.write_bytes(
        canonical_zip(
            {"manifest.json": manifest, "policy/policy.yaml": policy.encode(), "who/charter.json": charter}
        )
    )
    return path


def run(command: object, archive: Path, *words: str) -> dict[str, object]:
    result = CliRunner().invoke(
        command,  # type: ignore[arg-type]  # a click command
        [*words, "--archive", str(archive), "--json"],
        catch_exceptions=False,
    )
    document: dict[str, object] = json.loads(result.output)
    return document


def test_a_pack_goes_when_its_time_is_over_and_that_is_noted(tmp_path: Path) -> None:
    old, young = put(tmp_path, "old", 2200), put(tmp_path, "young", 10)
    digest = sha256_hex(old.read_bytes())
    assert run(expire, tmp_path, "--older-than", "2190d") == {"expired": [old.name], "kept": {}}
    assert (old.exists(), young.exists()) == (False, True)
    (line,) = (tmp_path / "expired.jsonl").read_text().splitlines()
    assert {k: json.loads(line)[k] for k in ("file", "job", "sha256")} == {
        "file": old.name,
        "job": "old",
        "sha256": digest,
    }


def test_before_its_threat_models_days_are_over_a_pack_is_refused_by_name_and_nothing_goes(
    tmp_path: Path,
) -> None:
    over, within = put(tmp_path, "over", 400, evidence_days=365), put(tmp_path, "within", 400)
    with pytest.raises(PolicyRefusal, match=r"evidence\.retention: .* job within") as refusal:
        run(expire, tmp_path, "--older-than", "365d")
    assert refusal.value.exit_code == 3
    assert over.exists()
    assert within.exists()
    told = run(expire, tmp_path, "--older-than", "365d", "--keep-protected")
    assert (told["expired"], list(told["kept"])) == ([over.name], [within.name])  # type: ignore[call-overload]
    assert (over.exists(), within.exists()) == (False, True)


def test_a_held_pack_outlives_its_retention_until_it_is_released(tmp_path: Path) -> None:
    pack = put(tmp_path, "disputed", 5000)
    run(hold, tmp_path, "add", "disputed", "--reason", "case 12/26")
    with pytest.raises(PolicyRefusal, match=r"evidence\.legal_hold(.|\n)*case 12/26"):
        run(expire, tmp_path, "--older-than", "1d")
    assert pack.exists()
    (listed,) = run(hold, tmp_path, "list")["holds"]  # type: ignore[misc]
    assert (listed["job"], listed["reason"]) == ("disputed", "case 12/26")
    run(hold, tmp_path, "release", "disputed")
    assert run(expire, tmp_path, "--older-than", "1d")["expired"] == [pack.name]


def test_holds_are_neither_doubled_nor_released_by_mistake(tmp_path: Path) -> None:
    run(hold, tmp_path, "add", "heart", "--reason", "a")
    with pytest.raises(Conflict, match="held already"):
        run(hold, tmp_path, "add", "heart", "--reason", "b")
    with pytest.raises(NotFound, match="not; see"):
        run(hold, tmp_path, "release", "other")


def test_a_damaged_list_of_holds_stops_every_expiry(tmp_path: Path) -> None:
    pack = put(tmp_path, "old", 5000)
    (tmp_path / "holds.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="restore it first"):
        run(expire, tmp_path, "--older-than", "1d")
    assert pack.exists()


def test_what_is_no_pack_stops_every_expiry(tmp_path: Path) -> None:
    pack = put(tmp_path, "old", 5000)
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(MalformedMessage, match=r"a\.zip"):
        run(expire, tmp_path, "--older-than", "1d")
    assert pack.exists()

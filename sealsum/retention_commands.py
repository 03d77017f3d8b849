"""``sealsum audit hold`` and ``expire``: an archive of evidence packs, kept as long as it must be.

An archive is a directory of packs with two files of its own: ``holds.json``, and ``expired.jsonl``, a line
for each pack that was deleted.
"""

from __future__ import annotations

import getpass
import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from policies.findings import PolicyRefusal
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import ConfigurationError, Conflict, NotFound
from privacy.ids import NAME_PATTERN
from sealsum.evidence_archive import read_zip
from sealsum.evidence_retention import Hold, Kept, kept_pack, refusals, to_expire
from silo_agent.durable import write_durably

_HOLDS, _EXPIRED = "holds.json", "expired.jsonl"
_archive = click.option(
    "--archive",
    required=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory that the packs lie in.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Days(click.ParamType[timedelta]):
    """A number of days, such as ``2190d``."""

    name = "days"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read ``Nd``."""
        if isinstance(value, timedelta):
            return value
        if not re.fullmatch(r"[0-9]{1,5}d", value):
            self.fail(f"expected days such as 2190d, got {value!r}", param, ctx)
        return timedelta(days=int(value[:-1]))


@click.group()
def hold() -> None:
    """Legal holds: evidence that must not go, whatever its age."""


@hold.command("add")
@click.argument("job")
@_archive
@click.option("--reason", required=True, help="What the hold is for, such as a file number.")
@_json
def add_hold(job: str, archive: Path, reason: str, as_json: bool) -> None:
    """Hold the evidence of JOB."""
    if not re.fullmatch(NAME_PATTERN, job):
        raise ConfigurationError(f"JOB: expected a name such as heart-risk, got {job!r}")
    holds = _read_holds(archive)
    if job in holds:
        raise Conflict(f"{job}: it is held already, by {holds[job].by} since {holds[job].at}")
    holds[job] = Hold(job, reason, getpass.getuser(), _instant(datetime.now(UTC)))
    _write_holds(archive, holds)
    _say({"held": asdict(holds[job])}, f"{job}: held; sealsum audit expire refuses it", as_json)


@hold.command("list")
@_archive
@_json
def list_holds(archive: Path, as_json: bool) -> None:
    """List what is held."""
    holds = _read_holds(archive)
    lines = [f"{h.job}  since {h.at}  by {h.by}  {h.reason}" for h in holds.values()]
    _say({"holds": [asdict(h) for h in holds.values()]}, "\n".join(lines) or "nothing is held", as_json)


@hold.command("release")
@click.argument("job")
@_archive
@_json
def release_hold(job: str, archive: Path, as_json: bool) -> None:
    """End the hold on JOB; nothing is deleted by that."""
    holds = _read_holds(archive)
    if job not in holds:
        raise NotFound(
            f"{job}: expected a job that is held, got one that is not; see sealsum audit hold list"
        )
    released = holds.pop(job)
    _write_holds(archive, holds)
    _say({"released": asdict(released)}, f"{job}: no longer held", as_json)


@click.command(short_help="Delete packs that nothing keeps any longer.")
@_archive
@click.option("--older-than", required=True, type=Days(), help="Age, in days: 2190d.")
@click.option("--keep-protected", is_flag=True, help="Delete the others although some must stay.")
@_json
def expire(archive: Path, older_than: timedelta, keep_protected: bool, as_json: bool) -> None:
    """Delete packs older than that; refuse, by name, those that a hold or their threat model keeps.

    Exit code 3 if any is refused; then nothing is deleted, unless --keep-protected is given.
    """
    now, holds = datetime.now(UTC), _read_holds(archive)
    asked = to_expire(_packs(archive), older_than, now)
    kept = refusals(asked, holds, now)
    if kept and not keep_protected:
        raise PolicyRefusal("sealsum audit expire", kept.values())
    gone = [one for one in asked if one.file not in kept]
    for one in gone:
        _delete(archive, one, now)
    document = {
        "expired": [one.file for one in gone],
        "kept": {file: asdict(finding) for file, finding in sorted(kept.items())},
    }
    lines = [*(f"{one.file}: deleted" for one in gone), *(f"{file}: kept" for file in sorted(kept))]
    _say(document, "\n".join(lines) or "no pack is that old", as_json)


def _packs(archive: Path) -> list[Kept]:
    return [
        kept_pack(path.name, read_zip(path.read_bytes(), path.name)) for path in sorted(archive.glob("*.zip"))
    ]


def _delete(archive: Path, pack: Kept, now: datetime) -> None:
    """Note it first: a pack that is gone is always told of."""
    path = archive / pack.file
    line = {"file": pack.file, "job": pack.job, "sha256": sha256_hex(path.read_bytes()), "at": _instant(now)}
    noted = archive / _EXPIRED
    before = noted.read_bytes() if noted.exists() else b""
    write_durably(noted, before + canonical_bytes(line) + b"\n")
    path.unlink()


def _read_holds(archive: Path) -> dict[str, Hold]:
    path = archive / _HOLDS
    if not path.exists():
        return {}
    try:
        return {one["job"]: Hold(**one) for one in json.loads(path.read_bytes())["holds"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path}: expected the holds that sealsum audit hold wrote, got something else; restore it first"
        ) from error


def _write_holds(archive: Path, holds: dict[str, Hold]) -> None:
    listed = [asdict(holds[job]) for job in sorted(holds)]
    write_durably(archive / _HOLDS, canonical_bytes({"holds": listed}))


def _instant(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _say(document: object, text: str, as_json: bool) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, indent=2) if as_json else text)

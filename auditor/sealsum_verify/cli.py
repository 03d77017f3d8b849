"""The command ``sealsum-verify``: prints what was checked; exit 0 verified, 5 not, 78 unreadable, 2 usage."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sealsum_verify import __version__
from sealsum_verify.shapes import ATOMS
from sealsum_verify.verify import CHECKS, Report, verify_pack


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify one pack."""
    parser = argparse.ArgumentParser(
        prog="sealsum-verify", description="Verify a Sealsum evidence pack offline. Exit 0: verified, 5: not."
    )
    parser.add_argument("pack", type=Path, help="evidence.zip")
    help_officers = "digest of the federation's officers, as you know it from them and not from the pack"
    parser.add_argument("--officers", type=_digest, metavar="DIGEST", help=help_officers)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    options = parser.parse_args(arguments)
    try:
        raw = options.pack.read_bytes()
    except OSError as error:
        sys.stderr.write(f"{options.pack}: cannot be read ({error.strerror})\n")
        return 78
    report = verify_pack(raw, options.officers)
    text = json.dumps(as_json(report), indent=2) if options.json else as_text(report)
    sys.stdout.write(text + "\n")
    return 0 if report.verified else 5


def as_json(report: Report) -> dict[str, object]:
    """The report for machines."""
    return {
        "version": __version__,
        "verified": report.verified,
        "officers": {"digest": report.officers, "pinned": report.pinned},
        "checks": [{"claim": claim, "passed": _passed(report, n)} for n, claim in enumerate(CHECKS, 1)],
        "fault": report.fault and {"entry": report.fault.entry, "reason": report.fault.sentence},
        "summary": report.summary,
        "self_reported": list(report.self_reported),
        "withheld": list(report.withheld),
        "epsilon": {silo: asdict(bracket) for silo, bracket in report.epsilon.items()},
    }


def as_text(report: Report) -> str:
    """The report for people."""
    marks = {True: "✓", False: "✗", None: "–"}
    lines = [f"{marks[_passed(report, n)]} {n:2}  {claim}" for n, claim in enumerate(CHECKS, 1)]
    for silo, found in report.epsilon.items():
        bounds = f"at least {found.lower:.4f} and at most {found.upper:.4f} by this program"
        lines.append(f"      {silo}: ε = {found.claimed:g} claimed after {found.rounds} rounds, {bounds}")
        if (alone := found.fallback) is not None:
            bounds = f"at least {alone.lower:.4f} and at most {alone.upper:.4f}"
            lines.append(
                f"      {silo}: should the secure sum fail, ε_fallback = {alone.claimed:g}, {bounds}"
            )
    for name in report.self_reported:
        lines.append(f"      {name}: self-reported by whoever exported the pack, not verified")
    lines += [f"      withheld, so not verified: {what}" for what in report.withheld]
    if report.fault is not None:
        return _plain("\n".join([*lines, "", f"NOT VERIFIED  {report.fault}"]))
    facts = "\n          ".join(f"{name} {_shown(value)}" for name, value in report.summary.items())
    trust = f"under the officers you gave ({report.officers})"
    if not report.pinned:
        trust = f"NOT PINNED: compare this digest with the federation's officers: {report.officers}"
        trust += f"\nthen run again with --officers {report.officers}"
    return _plain("\n".join([*lines, "", f"VERIFIED  {facts}", trust]))


def _passed(report: Report, number: int) -> bool | None:
    """Null for a check that was not reached."""
    return None if number > report.passed + 1 else number <= report.passed


def _shown(value: object) -> object:
    """A map or list as words; an empty one is "none"."""
    if isinstance(value, dict):
        value = [f"{name} {count}" for name, count in value.items()]
    return ", ".join(value) or "none" if isinstance(value, list) else value


def _plain(text: str) -> str:
    """A pack may hold control characters; a terminal must not obey them."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def _digest(text: str) -> str:
    if ATOMS["hex"].fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"expected 64 lower-case hex digits, got {text[:80]!r}")
    return text

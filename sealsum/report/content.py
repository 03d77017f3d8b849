"""The report of a pack, from verdict to signatures, as one document whatever it is written in.

Says of itself only what it knows: a report inside a pack cannot vouch for the pack, so its verdict strip
names the command; one written beside the pack carries what the verifier said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privacy.errors import MalformedMessage
from sealsum import __version__
from sealsum.report.closing_sections import (
    by_hand,
    control_mapping,
    known_limits,
    signatures,
    software,
    verify_command,
)
from sealsum.report.document import Document, Paragraph, Section, Tile
from sealsum.report.facts import Facts, facts_of
from sealsum.report.privacy_sections import attack_results, budgets, privacy_claim
from sealsum.report.silo_sections import dataset_card, effective_policies, policy_change
from sealsum.report.story_sections import approvals, policy, rounds, who_took_part


@dataclass(frozen=True)
class Collected:
    """Who put the pack together, when, and how its federation's root of trust is pinned."""

    signer: str
    created_at: str
    pin: str
    """Option of ``sealsum-verify`` that pins it, with its value."""


@dataclass(frozen=True)
class Verdict:
    """What ``sealsum-verify`` said of the pack that this report was written from."""

    exit_code: int
    checks: int
    """Passed."""
    of: int
    fault: str
    """Entry and reason; empty if there is none."""
    pinned: bool
    version: str

    @property
    def verified(self) -> bool:
        """Exit code 0."""
        return self.exit_code == 0


def report_of(files: Mapping[str, bytes], collected: Collected, verdict: Verdict | None = None) -> Document:
    """The document for a pack's files; the report's own and the manifest's need not be among them.

    Raises:
        MalformedMessage: a file is missing, or not of the form that a pack has.
    """
    try:
        return _report(facts_of(files), collected, verdict)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise MalformedMessage(
            f"report: expected the files of an evidence pack, got something else ({error!r}); "
            "sealsum-verify names the entry"
        ) from error


def _report(facts: Facts, collected: Collected, verdict: Verdict | None) -> Document:
    sections = (
        _verdict_section(collected, verdict),
        privacy_claim(facts),
        budgets(facts),
        rounds(facts),
        who_took_part(facts),
        approvals(facts),
        dataset_card(facts),
        *policy(facts),
        *policy_change(facts),
        effective_policies(facts),
        attack_results(facts),
        software(facts),
        known_limits(facts),
        control_mapping(),
        by_hand(collected.pin),
        signatures(facts, collected.signer, collected.created_at),
    )
    return Document(
        title=f"Evidence of job {facts.job['job']}",
        subtitle=f"Federation {facts.federation}. Purpose, as signed: {facts.job['purpose']}",
        tiles=_tiles(facts, collected, verdict),
        sections=sections,
        footer=f"Written by Sealsum {__version__} from the files of the pack. The proof is in those files.",
        dated=collected.created_at,
    )


def _tiles(facts: Facts, collected: Collected, verdict: Verdict | None) -> tuple[Tile, ...]:
    refusals = sum(len(one.refusals) for one in facts.rounds)
    openings = sum(one.openings for one in facts.rounds)
    finished = facts.rounds[-1].outcome if facts.rounds else "no round"
    largest = max((float(row["epsilon"]) for row in facts.claim["silos"].values()), default=None)
    claimed = "none claimed" if facts.claim["delta"] is None else "nothing spent"
    more = "this job ran without differential privacy" if facts.claim["delta"] is None else ""
    if largest is not None:
        claimed = f"ε ≤ {largest:.4f}"
        more = (
            f"per {facts.claim['unit']} at one silo, at δ = {facts.claim['delta']}; the largest of all silos"
        )
    withheld = len(facts.redactions)
    return (
        _verdict_tile(verdict),
        Tile("Privacy claim", claimed, more),
        Tile(
            "Rounds", str(len(facts.rounds)), f"{openings} sums opened, one a round at most; last: {finished}"
        ),
        Tile(
            "Policy",
            facts.policy_digest[:16] + "…",
            f"of the charter, epoch {facts.epoch}; in sentences below",
        ),
        Tile(
            "Refusals",
            str(refusals),
            "listed below, with rule and reason" if refusals else "no silo refused a round",
        ),
        Tile(
            "Withheld",
            str(withheld),
            "listed in REDACTIONS.json; proofs still hold"
            if withheld
            else "nothing was taken out of this pack",
        ),
    )


def _verdict_tile(verdict: Verdict | None) -> Tile:
    if verdict is None:
        return Tile(
            "Verdict", "Run the verifier", "a page inside a pack cannot vouch for the pack: command below"
        )
    by = f"sealsum-verify {verdict.version}"
    if not verdict.verified:
        return Tile("Verdict", "✗ Not verified", f"by {by}: {verdict.fault}", "bad")
    if not verdict.pinned:
        return Tile("Verdict", "Consistent, not pinned", f"by {by}, {verdict.checks} of {verdict.of} checks")
    return Tile("Verdict", "✓ Verified", f"by {by}, offline, {verdict.checks} of {verdict.of} checks", "good")


def _verdict_section(collected: Collected, verdict: Verdict | None) -> Section:
    told = (
        f"{collected.signer} collected and signed this pack on {collected.created_at}, and in doing so "
        "checked the "
        "charter, the job and each ledger. That is not a verdict. Anybody can reach one, offline:"
    )
    if verdict is not None:
        outcome = (
            "ended with exit code 0" if verdict.verified else f"ended with exit code {verdict.exit_code}"
        )
        told = (
            f"{collected.signer} collected and signed the pack on {collected.created_at}. sealsum-verify "
            f"{verdict.version}, a separate program with an accountant of its own, passed {verdict.checks} "
            "of its "
            f"{verdict.of} checks and {outcome}. To repeat that:"
        )
    return Section(
        "What was verified, by whom, and how to repeat it",
        (
            Paragraph(told),
            verify_command(collected.pin),
            Paragraph(
                "Compare the value in that command with the federation, by a way of your own: whoever "
                "made up a pack "
                "would have made up the value too.",
                quiet=True,
            ),
        ),
    )

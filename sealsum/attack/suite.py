"""All attacks in order, and what they come to together. Knows no screen and no file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from privacy.plan import JobSpec
from sealsum import __version__
from sealsum.attack.effort import EFFORTS, Effort, SuiteName
from sealsum.attack.imprint import audit_imprint
from sealsum.attack.inversion import audit_inversion
from sealsum.attack.job_noise import audit_job_noise
from sealsum.attack.mask_audit import audit_mask
from sealsum.attack.membership import audit_membership
from sealsum.attack.noise_audit import audit_sums, audit_updates
from sealsum.attack.outcome import Findings, Outcome
from sealsum.attack.poisoning import audit_poisoning


@dataclass(frozen=True)
class Attack:
    """One part of a suite."""

    title: str
    question: str
    run: Callable[[Effort], Findings]


ATTACKS: Final = (
    Attack(
        "Canaries in the opened sum",
        "Is the noise that ε claims in the sum, even when a silo colludes?",
        audit_sums,
    ),
    Attack(
        "Canaries in a bare update",
        "Does dp_fedavg keep its claim if the secure sum fails?",
        audit_updates,
    ),
    Attack("Reading at a share server", "Does a share give away an update?", audit_mask),
    Attack("Membership inference", "Can one tell who was trained on?", audit_membership),
    Attack("Reconstruction", "Can records be read out of gradients?", audit_inversion),
    Attack("Imprint model", "Can a malicious coordinator read records out of a sum?", audit_imprint),
    Attack("Poisoning", "How far can one silo or record pull the sum?", audit_poisoning),
)


@dataclass(frozen=True)
class Result:
    """A suite that has run."""

    suite: SuiteName
    parts: tuple[tuple[Attack, Findings], ...]
    duration_s: float

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of all attacks, in order."""
        return tuple(outcome for _, findings in self.parts for outcome in findings.outcomes)

    @property
    def ok(self) -> bool:
        """Every attack succeeded with its protection off and failed with it on."""
        return all(outcome.as_expected for outcome in self.outcomes)

    def plain(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "suite": self.suite,
            "version": __version__,
            "ok": self.ok,
            "duration_s": round(self.duration_s, 1),
            "attacks": [
                {
                    "name": outcome.attack,
                    "protection": outcome.protection,
                    "protected": outcome.protected,
                    "succeeded": outcome.succeeded,
                    "measured": outcome.measured,
                    "expected": outcome.expected,
                    "verdict": outcome.verdict,
                    "figures": dict(outcome.figures),
                }
                for outcome in self.outcomes
            ],
        }


def attacks_on(job: JobSpec | None) -> tuple[Attack, ...]:
    """All of them; with a job under DP also the one on its own noise."""
    if job is None or job.dp is None:
        return ATTACKS
    own = partial(audit_job_noise, job.dp)
    question = "Is the noise that this job's ε claims in its sum?"
    return (*ATTACKS, Attack(f"Noise of job {job.job}", question, own))


def run_suite(suite: SuiteName, announce: Callable[[Attack], None], job: JobSpec | None = None) -> Result:
    """Run every attack; ``announce`` is called before each."""
    began = time.monotonic()
    parts = []
    for attack in attacks_on(job):
        announce(attack)
        parts.append((attack, attack.run(EFFORTS[suite])))
    return Result(suite, tuple(parts), time.monotonic() - began)

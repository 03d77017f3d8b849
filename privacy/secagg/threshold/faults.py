"""Refusals that only this protocol knows; the ones it shares with ``pairwise`` are raised from there."""

from __future__ import annotations

from privacy.errors import SealsumError, Unprocessable


class WorkerFailed(SealsumError):
    """The process that runs OpenFHE died, hung or failed; the round ends here, and nothing was sent."""


class KeyholderMissing(Unprocessable):
    """A silo with a share in the joint key is gone: nobody can open this round; start another one."""

    kind = "keyholder-missing"


class BadJointKey(Unprocessable):
    """A key share is not the one committed to, or a silo has another joint key than the sum of them."""

    kind = "bad-joint-key"


class BadSum(Unprocessable):
    """What is to be opened, or was opened, is not the sum of the cohort's ciphertexts."""

    kind = "bad-sum"

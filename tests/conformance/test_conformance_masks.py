"""Pairwise masks alone, without the sealing: they cancel bit for bit in every cohort up to 100 silos."""

from __future__ import annotations

import os
import random
from hashlib import sha256

import numpy as np
import pytest

from privacy.ids import Context, Digest, SiloId
from privacy.secagg.pairwise.masks import Mask, own_mask, pair_mask
from privacy.secagg.pairwise.terms import Assumption, least_threshold

LENGTH = 3
MODEL = Digest("22" * 32)


def assert_masks_cancel(silos: int, draw: random.Random) -> None:
    """Survivors' masked zeros, less what the server takes off, are zeros; nothing less does."""
    key_set, context = Digest(os.urandom(32).hex()), Context(Digest(os.urandom(32).hex()))
    names = sorted(SiloId(f"bank-{draw.randrange(10**6):06}-{n}") for n in range(silos))
    secret = os.urandom(32)
    seeds = {silo: os.urandom(32) for silo in names}

    def shared(one: SiloId, other: SiloId) -> bytes:
        return sha256(secret + "|".join(sorted((one, other))).encode()).digest()

    def own(silo: SiloId) -> Mask:
        return own_mask(seeds[silo], key_set, context, MODEL, silo)

    def between(silo: SiloId, peer: SiloId) -> Mask:
        return pair_mask(shared(silo, peer), key_set, context, MODEL, silo, peer)

    threshold = least_threshold(silos, Assumption("malicious", 0))
    gone = set(draw.sample(names, draw.randint(0, silos - threshold)))
    survivors = [silo for silo in names if silo not in gone]
    total = np.zeros(LENGTH, dtype="<u4")
    for silo in survivors:
        own(silo).apply(0, total)
        for peer in names:
            if peer != silo:
                between(silo, peer).apply(0, total)
    assert total.any()
    for silo in survivors:
        own(silo).inverse().apply(0, total)
        for dropout in gone:
            between(silo, dropout).inverse().apply(0, total)
    assert not total.any()


@pytest.mark.parametrize("silos", [2, 3, 5, 16, 33])
def test_masks_cancel_bit_for_bit_with_as_many_dropouts_as_can_be(silos: int) -> None:
    for seed in range(3):
        assert_masks_cancel(silos, random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("silos", range(2, 101))
def test_masks_cancel_bit_for_bit_for_every_cohort_up_to_a_hundred(silos: int) -> None:
    for seed in range(2):
        assert_masks_cancel(silos, random.Random(1000 * silos + seed))

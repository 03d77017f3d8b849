"""All shares together are the sum; any fewer are noise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import MalformedMessage, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.secagg import additive, keystream
from privacy.secagg.additive import (
    AdditiveSiloHalf,
    SeedSumHalf,
    VectorSumHalf,
    combine,
    ring_to_bytes,
    unseal_seed,
)
from privacy.secagg.parts import PART_ELEMENTS, stretch, stretches

CTX = Context(Digest("11" * 32))
MODEL = Digest("22" * 32)
SEALING = {ServerId(f"server-{letter}"): SealingKey.generate() for letter in "bcde"}
VECTORS = Path(__file__).parents[2] / "vectors"


def share_and_sum(updates: dict[SiloId, np.ndarray], servers: int) -> np.ndarray:
    """Every role of the protocol, honest: silos share, servers sum, the aggregator combines."""
    keys = dict(list(SEALING.items())[: servers - 1])
    length = len(next(iter(updates.values())))
    vectors: list[bytes] = []
    seeds: dict[ServerId, list[tuple[SiloId, bytes]]] = {server: [] for server in keys}
    for silo, update in updates.items():
        half = AdditiveSiloHalf(CTX, MODEL, silo, {server: key.public_hex for server, key in keys.items()})
        vectors.append(ring_to_bytes(half.share(0, update)))
        for server, sealed in half.sealed_seeds.items():
            seeds[server].append((silo, unseal_seed(sealed, keys[server], CTX, MODEL, silo, server)))
    shares = [ring_to_bytes(VectorSumHalf.total(vectors, length))]
    shares += [
        ring_to_bytes(SeedSumHalf(pairs, CTX, MODEL, server).total(0, length))
        for server, pairs in seeds.items()
    ]
    return combine(shares, length)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(2, 5), st.sampled_from([1, 2, 7, 65_537, 262_145]))
def test_the_opened_sum_is_the_sum_bit_for_bit(silos: int, servers: int, length: int) -> None:
    updates = {SiloId(f"silo-{n}"): np.frombuffer(os.urandom(4 * length), dtype="<u4") for n in range(silos)}
    oracle = np.sum(np.stack(list(updates.values())), axis=0, dtype=np.uint32)
    assert np.array_equal(share_and_sum(updates, servers), oracle)


def test_one_share_alone_is_uniform_whatever_the_update() -> None:
    zeros = np.zeros(1 << 18, dtype=np.uint32)
    half = AdditiveSiloHalf(
        CTX, MODEL, SiloId("a"), {ServerId("server-b"): SEALING[ServerId("server-b")].public_hex}
    )
    counts = np.bincount(np.frombuffer(ring_to_bytes(half.share(0, zeros)), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert 255 - 6 * (2 * 255) ** 0.5 < chi_square < 255 + 6 * (2 * 255) ** 0.5


def test_two_sharings_of_one_update_have_nothing_in_common() -> None:
    update = np.arange(4096, dtype=np.uint32)
    server = {ServerId("server-b"): SEALING[ServerId("server-b")].public_hex}
    first, second = (AdditiveSiloHalf(CTX, MODEL, SiloId("a"), server).share(0, update) for _ in range(2))
    assert int((first == second).sum()) <= 3


@pytest.mark.parametrize("what", ["context", "model", "silo", "server", "key"])
def test_a_seed_sealed_for_one_use_opens_for_no_other(what: str) -> None:
    server, silo = ServerId("server-b"), SiloId("a")
    half = AdditiveSiloHalf(CTX, MODEL, silo, {server: SEALING[server].public_hex})
    use = {"context": CTX, "model": MODEL, "silo": silo, "server": server, "key": SEALING[server]}
    other = {
        "context": "33" * 32,
        "model": "33" * 32,
        "silo": "b",
        "server": "server-c",
        "key": SEALING[ServerId("server-c")],
    }
    use[what] = other[what]
    with pytest.raises(MalformedMessage, match="does not open with this key and context"):
        unseal_seed(
            half.sealed_seeds[server], use["key"], use["context"], use["model"], use["silo"], use["server"]
        )


def test_a_silo_that_was_sent_another_model_yields_noise_not_a_leak() -> None:
    server = ServerId("server-b")
    update = np.zeros(4096, dtype=np.uint32)
    half = AdditiveSiloHalf(CTX, Digest("44" * 32), SiloId("a"), {server: SEALING[server].public_hex})
    with pytest.raises(MalformedMessage):
        unseal_seed(half.sealed_seeds[server], SEALING[server], CTX, MODEL, SiloId("a"), server)
    share = half.share(0, update)
    assert len(np.unique(share)) > 4000


def test_a_keystream_never_repeats_across_chunks_and_any_part_can_be_made_alone() -> None:
    key = keystream.derive_key(b"\x07" * 32, b"test")
    whole = keystream.keystream(key, 0, 3 * keystream.CHUNK_ELEMENTS + 5)
    chunks = [whole[n * keystream.CHUNK_ELEMENTS :][:1024].tobytes() for n in range(3)]
    assert len(set(chunks)) == 3
    again = keystream.keystream(key, 2 * keystream.CHUNK_ELEMENTS, keystream.CHUNK_ELEMENTS)
    assert np.array_equal(again, whole[2 * keystream.CHUNK_ELEMENTS : 3 * keystream.CHUNK_ELEMENTS])
    with pytest.raises(ValueError, match="expected a multiple of"):
        keystream.keystream(key, 1, 4)


@pytest.mark.parametrize("start", [0, 3 * keystream.CHUNK_ELEMENTS])
@pytest.mark.parametrize("length", [1, 2**15 - 1, 2**15 + 1, 2 * 2**18 + 7])
def test_many_streams_applied_together_are_each_the_one_keystream(start: int, length: int) -> None:
    keys = [bytes([n]) * 32 for n in range(5)]
    elements = np.arange(length, dtype=np.uint32)
    applied = keystream.apply_streams(elements, start, added=keys[:2], subtracted=keys[2:])
    assert np.array_equal(elements, np.arange(length))
    again = keystream.apply_streams(elements, start, added=keys[:2], subtracted=keys[2:], out=elements)
    assert again is elements
    assert np.array_equal(applied, elements)
    one_by_one = np.arange(length, dtype=np.uint32)
    for place, key in enumerate(keys):
        stream = keystream.keystream(key, start, length)
        one_by_one = one_by_one + stream if place < 2 else one_by_one - stream
    assert np.array_equal(elements, one_by_one)
    with pytest.raises(ValueError, match="expected a multiple of"):
        keystream.apply_streams(elements, start + 2**15, added=keys)


def test_no_stream_changes_nothing() -> None:
    elements = np.arange(2**15 + 3, dtype=np.uint32)
    assert np.array_equal(keystream.apply_streams(elements, 0), elements)


@pytest.mark.parametrize("start", [0, 2 * keystream.CHUNK_ELEMENTS])
def test_both_halves_take_the_one_keystream_across_chunks(start: int) -> None:
    silo, server, seed = SiloId("a"), ServerId("server-b"), b"\x07" * 32
    length = 2 * keystream.CHUNK_ELEMENTS + 3
    key = additive._mask_key(seed, CTX, MODEL, silo, server)
    mask = SeedSumHalf([(silo, seed)], CTX, MODEL, server).total(start, length)
    assert np.array_equal(mask, keystream.keystream(key, start, length))
    half = AdditiveSiloHalf(CTX, MODEL, silo, {server: SEALING[server].public_hex})
    own = unseal_seed(half.sealed_seeds[server], SEALING[server], CTX, MODEL, silo, server)
    opened = SeedSumHalf([(silo, own)], CTX, MODEL, server).total(start, length)
    opened += half.share(start, np.arange(length, dtype=np.uint32))
    assert np.array_equal(opened, np.arange(length))


def test_one_server_is_not_enough_to_share_over() -> None:
    with pytest.raises(Unprocessable, match="at least two share servers"):
        AdditiveSiloHalf(CTX, MODEL, SiloId("a"), {})


def test_a_share_of_another_length_is_refused() -> None:
    with pytest.raises(Unprocessable, match="expected 16 bytes, got 12"):
        VectorSumHalf.total([b"\0" * 12], 4)


def test_secrets_do_not_print() -> None:
    half = AdditiveSiloHalf(
        CTX, MODEL, SiloId("a"), {ServerId("server-b"): SEALING[ServerId("server-b")].public_hex}
    )
    assert "_keys" not in repr(half)
    assert repr(SEALING[ServerId("server-b")]) == "SealingKey()"


def test_the_wire_format_of_masks_is_pinned() -> None:
    vector = json.loads((VECTORS / "additive_mask.json").read_text())
    key = additive._mask_key(
        bytes.fromhex(vector["seed"]),
        Context(Digest(vector["context"])),
        Digest(vector["model"]),
        vector["silo"],
        vector["server"],
    )
    for case in vector["keystream"]:
        got = keystream.keystream(key, case["start"], 4)
        assert ring_to_bytes(got).hex() == case["elements"], case["start"]


def test_parts_cover_a_vector_exactly_once() -> None:
    for length in (1, PART_ELEMENTS - 1, PART_ELEMENTS, PART_ELEMENTS + 1, 3 * PART_ELEMENTS):
        pieces = list(stretches(length))
        assert [piece.start for piece in pieces] == [n * PART_ELEMENTS for n in range(len(pieces))]
        assert sum(piece.length for piece in pieces) == length
        with pytest.raises(Unprocessable, match="part: expected 0 to"):
            stretch(len(pieces), length)

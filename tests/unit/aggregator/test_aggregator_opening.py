"""The one module that opens sums: exact where it should be, and nothing comes from what does not fit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aggregator import opening as opening_module
from aggregator.blob_store import Blob
from aggregator.blobs import Directory
from aggregator.opening import SumImplausible, open_sum
from aggregator.received import open_of_servers, open_offer
from aggregator.schemes.additive import Shares, check_shares
from aggregator.server_memory import ServerMemory
from policies.gates import ClearedCohort, admit_plan, clear_cohort
from policies.loader import load_threat_model
from privacy.canonical import sha256_hex
from privacy.errors import Unprocessable
from privacy.ids import Digest, PartyId, ServerId
from privacy.plan import TrainingTerms
from privacy.secagg import parts as parts_module
from privacy.secagg.additive import SeedSumHalf, VectorSumHalf, ring_to_bytes, unseal_seed
from privacy.secagg.parts import part_count, stretches
from privacy.secagg.vectors import vectors_of
from privacy.sent import sent_in
from privacy.sent_terms import SparseTerms
from privacy.wire.envelope import Verified
from privacy.wire.messages import OpeningShare, SurvivorSet
from tests.federation import Federation


class Opening:
    """A cleared round of silos with given updates, and the servers' shares of its sum."""

    def __init__(
        self,
        root: Path,
        updates: list[NDArray[np.float32]],
        other_model: bool = False,
        training: TrainingTerms | None = None,
    ) -> None:
        self.federation = Federation(silos=len(updates))
        charter = self.federation.charter
        spec = self.federation.job_spec(
            parameters=len(updates[0]), **({} if training is None else {"training": training})
        )
        self.plan = self.federation.plan(spec)
        zero = np.zeros(spec.model.parameters, dtype=np.float32)
        self.sent = sent_in(spec.training, spec.model, spec.digest, 1, zero, zero)
        policy = load_threat_model(charter.policy_text)
        offer = open_offer(charter, self.federation.offer(self.plan, self.federation.sign_job(spec)))
        admitted = admit_plan([policy], *offer, charter)
        shared = [
            self.federation.share(
                self.plan, silo, update if self.sent is None else update[self.sent.coordinates]
            )
            for silo, update in zip(self.plan.silos, updates, strict=True)
        ]
        survivors = [self._survivors(server, shared) for server in charter.share_servers]
        signed = open_of_servers(charter, self.plan, survivors, SurvivorSet, "survivors")
        self.cleared: ClearedCohort = clear_cohort(admitted, signed, charter, policy, opened_before=False)
        self.bytes: dict[ServerId, list[bytes]] = {}
        key = self.federation.parties["server-1"].sealing
        assert key is not None
        first, second = charter.share_servers
        seeds = [
            (
                s.silo,
                unseal_seed(s.sealed_seeds[second], key, self.plan.context, self.plan.model, s.silo, second),
            )
            for s in shared
        ]
        expand = self.plan.model if not other_model else Digest("0" * 64)
        half = SeedSumHalf(seeds, self.plan.context, expand, second)
        pieces = list(stretches(self.plan.vector_length))
        self.bytes[first] = [
            ring_to_bytes(VectorSumHalf.total([s.parts[p.index] for s in shared], p.length)) for p in pieces
        ]
        self.bytes[second] = [ring_to_bytes(half.total(p.start, p.length)) for p in pieces]
        (root / "model").write_bytes(self.federation.initial_model(len(updates[0])))
        self.model_in = Blob(Directory(root), ("model",))
        self.written: list[bytes] = []
        self.memories = ServerMemory(Directory(root / "optimizers"))

    def _survivors(self, server: ServerId, shared: list[Any]) -> Any:
        message = SurvivorSet(
            server=server,
            survivors=self.plan.silos,
            manifests=tuple(s.envelope.body_digest for s in shared),
        )
        return self.federation.sign(message, "survivors", self.plan.context, server)

    def shares(self, **changes: Any) -> tuple[Verified[OpeningShare], ...]:
        envelopes = []
        for server, raw in self.bytes.items():
            message = OpeningShare(
                server=server,
                survivors=self.cleared.survivors_digest,
                parts=tuple(sha256_hex(part) for part in raw),
            ).model_copy(update=changes)
            envelopes.append(self.federation.sign(message, "opening", self.plan.context, server))
        return open_of_servers(self.federation.charter, self.plan, envelopes, OpeningShare, "opening")

    def open(self, shares: tuple[Verified[OpeningShare], ...] | None = None) -> NDArray[np.float32]:
        async def fetch(server: ServerId, index: int) -> bytes:
            return self.bytes[server][index]

        places = vectors_of(self.plan).places(part_count)
        with self.memories.of_round(self.plan, self.plan.model) as memory:
            asyncio.run(
                open_sum(
                    self.cleared,
                    Shares(check_shares(self.cleared, shares or self.shares()), fetch, places).total,
                    self.model_in,
                    self.written.append,
                    memory,
                    first=self.model_in,
                )
            )
        return np.frombuffer(b"".join(self.written), dtype="<f4")


def _updates(silos: int, parameters: int) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(3)
    return [generator.normal(0, 0.5, parameters).astype(np.float32) for _ in range(silos)]


def test_the_opened_sum_is_the_plaintext_mean_within_the_quantisation(tmp_path: Path) -> None:
    updates = _updates(4, 50)
    model = Opening(tmp_path, updates).open()
    assert np.allclose(model, np.mean(updates, axis=0), atol=2.0**-20)


def test_parts_change_nothing_even_if_the_weight_lies_alone_in_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "PART_ELEMENTS", 1 << 18)
    parameters = 2 << 18
    updates = [np.full(parameters, 0.25 * number, dtype=np.float32) for number in (1, 2, 3, 2)]
    opening = Opening(tmp_path, updates)
    assert len(opening.bytes[ServerId(PartyId("server-0"))]) == 3
    model = opening.open()
    assert model.shape == (parameters,)
    assert np.allclose(model, 0.5, atol=2.0**-20)
    assert [len(part) for part in opening.written] == [1 << 20, 1 << 20, 0]


def test_a_part_decoded_in_slices_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = _updates(4, 50)
    for slice_length in (1, 16, 50):
        monkeypatch.setattr(opening_module, "_STEP_ELEMENTS", slice_length)
        model = Opening(tmp_path, updates).open()
        assert np.allclose(model, np.mean(updates, axis=0), atol=2.0**-20)


@pytest.mark.parametrize("slice_length", [1, 7, 50])
@pytest.mark.parametrize("share", [0.05, 0.4])
def test_a_sum_of_some_coordinates_moves_these_alone_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, slice_length: int
) -> None:
    monkeypatch.setattr(opening_module, "_STEP_ELEMENTS", slice_length)
    monkeypatch.setattr(parts_module, "PART_ELEMENTS", 1 << 18)
    training = TrainingTerms(
        algorithm="dp_fedavg",
        local_steps=2,
        learning_rate=0.5,
        server_learning_rate=1.0,
        sparse=SparseTerms(kind="random", share=share),
    )
    updates = _updates(4, 50)
    opening = Opening(tmp_path, updates, training=training)
    assert opening.sent is not None
    assert len(opening.sent.coordinates) == np.ceil(share * 50)
    model = opening.open()
    expected = np.where(opening.sent.mask(50), np.mean(updates, axis=0), 0.0)
    np.testing.assert_allclose(model, expected, atol=2.0**-20)


def test_masks_of_another_model_give_noise_and_no_model(tmp_path: Path) -> None:
    opening = Opening(tmp_path, _updates(4, 50), other_model=True)
    with pytest.raises(SumImplausible, match="the shares do not fit together"):
        opening.open()
    assert opening.written == []


def test_a_zero_weight_is_never_divided_by(tmp_path: Path) -> None:
    opening = Opening(tmp_path, _updates(4, 5))
    plan = opening.plan.model_copy(
        update={"training": opening.plan.training.model_copy(update={"weights": "examples"})}
    )
    _put_sum(opening, np.zeros(6, dtype="<u4"))
    # Evidence cannot be made for a plan that no gate saw; here it is mutilated, in the same round.
    plan.__dict__["context"] = opening.plan.context
    object.__setattr__(opening.cleared.admitted, "plan", plan)
    with pytest.raises(SumImplausible, match="nothing is divided by it"):
        opening.open()


def test_a_coordinate_beyond_the_survivors_reach_gives_no_model(tmp_path: Path) -> None:
    opening = Opening(tmp_path, _updates(4, 5))
    total = np.zeros(6, dtype="<u4")
    total[2], total[5] = (17 << 20), (4 << 20)  # 17 > 4 silos × bound 4
    _put_sum(opening, total)
    with pytest.raises(SumImplausible, match="beyond what the survivors"):
        opening.open()
    assert opening.written == []


def test_a_flipped_bit_in_a_part_is_refused(tmp_path: Path) -> None:
    opening = Opening(tmp_path, _updates(4, 5))
    shares = opening.shares()
    for raw in opening.bytes.values():
        raw[0] = bytes([raw[0][0] ^ 1]) + raw[0][1:]
        with pytest.raises(Unprocessable, match="not the ones that were signed"):
            opening.open(shares)
        raw[0] = bytes([raw[0][0] ^ 1]) + raw[0][1:]


def test_a_share_that_is_not_exactly_the_one_cleared_is_refused(tmp_path: Path) -> None:
    opening = Opening(tmp_path, _updates(4, 5))
    with pytest.raises(Unprocessable, match="other survivors than were cleared"):
        opening.open(opening.shares(survivors=Digest("0" * 64)))
    with pytest.raises(Unprocessable, match="expected 1 parts"):
        opening.open(opening.shares(parts=(Digest("0" * 64),) * 2))
    with pytest.raises(Unprocessable, match="one share of each"):
        opening.open(opening.shares()[:1])
    with pytest.raises(Unprocessable, match="one share of each"):
        opening.open((opening.shares()[0],) * 2)
    assert opening.written == []


def _put_sum(opening: Opening, total: NDArray[np.uint32]) -> None:
    """Make the two shares add up to ``total``."""
    first, second = opening.bytes
    mask = np.frombuffer(opening.bytes[second][0], dtype="<u4")
    opening.bytes[first] = [ring_to_bytes(total - mask)]

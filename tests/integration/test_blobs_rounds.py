"""Whole rounds where parts and models lie in a bucket, and where there is no room for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.blob_store import Blobs
from aggregator.not_now import BlobsAway, NotNow, StorageFull
from aggregator.s3_blobs import S3Blobs
from privacy.transparency.leaf import parse_record
from tests.aggregator_world import Silo, World, client_of, on_loop, submit
from tests.bucket import bucket, give_credentials, settings_of


async def run_job(world: World, aggregator: Any, rounds: int) -> tuple[dict[str, Any], bytes]:
    """A job of silos whose updates are 0.25, 0.5, 0.75 and 1: its view, and its model as silos get it."""
    spec = world.federation.job_spec(parameters=5, rounds=rounds)
    silos = [
        Silo(world, aggregator, f"silo-{n}", np.full(5, 0.25 * n, dtype=np.float32)) for n in range(1, 5)
    ]
    await submit(world, aggregator, spec)
    await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        view = (await client.get("/v1/jobs/heart")).json()
        return view, (await client.get(f"/v1/models/{view['model']}")).content


def is_mean(model: bytes, rounds: int) -> bool:
    """Each round adds the mean, 0.625, up to a step of the encoding's 2^-20."""
    return bool(np.allclose(np.frombuffer(model, dtype="<f4"), 0.625 * rounds, atol=1e-5))


@pytest.mark.slow
@on_loop
async def test_a_job_whose_servers_keep_everything_in_a_bucket_opens_the_mean_and_leaves_models_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_credentials(monkeypatch)
    with bucket() as endpoint:
        parties = ("aggregator", "server-0", "server-1")
        lie_in = {party: {"blobs": settings_of(endpoint, party)} for party in parties}
        world = World(tmp_path, settings=lie_in)
        async with world.running(world.build_aggregator(**lie_in["aggregator"])) as aggregator:
            view, model = await run_job(world, aggregator, 2)
            assert (view["state"], view["openings"]) == ("finished", 2)
            assert is_mean(model, 2)
            async with asyncio.timeout(20):
                while _unscrubbed(aggregator):
                    await asyncio.sleep(0.01)
        kept = [*aggregator.stores.opened.items()]
        for server in world.servers.values():
            kept += server.stores.opened.items()
        assert all(isinstance(blobs, S3Blobs) for _, blobs in kept)
        assert {kind for kind, blobs in kept if blobs.names()} == {"models"}
        in_folders = {path.name for path in tmp_path.glob("*/*") if path.is_dir()}
        assert in_folders.isdisjoint({"models", "parts", "sums", "opening"})
        again = world.build_aggregator(**lie_in["aggregator"])
        async with client_of(again.app, world.federation.certificate_der("researcher")) as client:
            assert (await client.get(f"/v1/models/{view['model']}")).content == model
        again.state.store.close()


@contextmanager
def refusing_once(blobs: Blobs, reason: NotNow, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The next draft finds no room, or no store."""
    usual, refused = blobs.draft, []

    @contextmanager
    def draft() -> Iterator[Any]:
        if not refused:
            refused.append(1)
            raise reason
        with usual() as drawn:
            yield drawn

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "draft", draft)
        yield refused


@pytest.mark.parametrize("reason", [StorageFull("storage: full"), BlobsAway("blobs: away")], ids=repr)
@on_loop
async def test_a_round_that_finds_no_room_for_its_model_is_taken_up_again_and_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: NotNow
) -> None:
    monkeypatch.setattr("aggregator.run_loop._STORAGE_PAUSE_S", 0.05)
    world = World(tmp_path)
    spec_model = world.federation.job_spec(parameters=5)
    async with world.running(world.build_aggregator()) as aggregator:
        async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
            path = f"/v1/models/{spec_model.initial_model}"
            under = {"architecture": spec_model.model.architecture}
            raw = world.federation.initial_model(5)
            assert (await client.put(path, params=under, content=raw)).status_code == 201
        usual = aggregator.state.models.receive

        async def here(*given: Any, **named: Any) -> bool:
            return False if aggregator.state.models.exists(given[1]) else await usual(*given, **named)

        monkeypatch.setattr(aggregator.state.models, "receive", here)  # so that the next draft is the round's
        with refusing_once(aggregator.state.models, reason, monkeypatch) as refused:
            view, model = await run_job(world, aggregator, 1)
        assert refused == [1]
        assert (view["state"], view["openings"], view["round"]) == ("finished", 1, 1)
        assert is_mean(model, 1)
        with aggregator.state.store.read() as view_:
            told = [parse_record(line).kind for line in aggregator.state.store.log.lines(view_.connection)]
        assert [told.count(kind) for kind in ("round_offered", "model_published", "round_aborted")] == [
            1,
            1,
            0,
        ]


def _unscrubbed(aggregator: Any) -> bool:
    with aggregator.state.store.read() as view:
        return bool(view.connection.exec_driver_sql("SELECT 1 FROM rounds WHERE scrubbed = 0").all())

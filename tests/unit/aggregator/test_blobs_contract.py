"""What holds for blobs wherever they lie: in a folder, and in a bucket behind a real server over HTTP."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from obstore.store import S3Store

from aggregator.blob_settings import BlobSettings
from aggregator.blob_store import Blob, Blobs
from aggregator.blobs import Directory, checked, sha256_of
from aggregator.not_now import BlobsAway
from aggregator.parts import check_parts
from aggregator.s3_blobs import SINGLE_BYTES, S3Blobs, bucket_of
from aggregator.settings import AggregatorSettings
from aggregator.stores import Stores
from privacy.canonical import sha256_hex
from privacy.errors import ConfigurationError, Conflict, NotFound, TooLarge, Unprocessable
from privacy.ids import Context, Digest, PartyId, SiloId
from tests.aggregator_world import on_loop
from tests.bucket import SECRET, bucket, give_credentials, settings_of

SILO = SiloId(PartyId("silo-1"))
CTX = Context(Digest("11" * 32))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A bucket called ``federation``."""
    with bucket() as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    give_credentials(monkeypatch)


@pytest.fixture(params=["folder", "bucket"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return Directory(tmp_path / "blobs")
    endpoint = cast("str", request.getfixturevalue("endpoint"))
    return S3Blobs(bucket_of(settings_of(endpoint)), f"a/{tmp_path.name}", tmp_path / "spool")


async def body(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def store(blobs: Blobs, raw: bytes, *segments: str) -> None:
    with blobs.draft() as draft:
        draft.write(raw)
        draft.commit(*segments)


@on_loop
async def test_what_is_received_is_there_whole_once_and_in_any_part(blobs: Blobs) -> None:
    raw = bytes(range(256)) * 8
    where = (CTX, SILO, "00000")
    assert await blobs.receive(body(raw[:9], raw[9:]), sha256_hex(raw), sha256_of, *where, limit=len(raw))
    assert not await blobs.receive(body(raw), sha256_hex(raw), sha256_of, *where, limit=len(raw))
    blob = Blob(blobs, where)
    assert await blob.fetch() == blob.read() == b"".join(blob.chunks()) == raw
    assert b"".join(blob.chunks(2000)) == raw[2000:]
    assert b"".join(blob.chunks(len(raw))) == b""
    assert blob.read_range(7, 30) == raw[7:37]
    assert blob.read_range(2040, 30) == raw[2040:]
    assert (blobs.size(*where), blobs.exists(*where), blobs.exists(CTX, SILO, "00001")) == (2048, True, False)


@on_loop
async def test_other_bytes_never_take_a_name_that_is_taken(blobs: Blobs) -> None:
    await blobs.receive(body(b"first"), sha256_hex(b"first"), sha256_of, CTX, "0", limit=5)
    with pytest.raises(Conflict, match="other bytes came first"):
        await blobs.receive(body(b"other"), sha256_hex(b"other"), sha256_of, CTX, "0", limit=5)
    assert blobs.read(CTX, "0") == b"first"


@on_loop
async def test_what_breaks_is_too_long_or_has_another_digest_never_appears(blobs: Blobs) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"hal"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await blobs.receive(broken(), sha256_hex(b"half"), sha256_of, CTX, "0", limit=4)
    with pytest.raises(TooLarge, match="at most 4 bytes"):
        await blobs.receive(body(b"halfs"), sha256_hex(b"halfs"), sha256_of, CTX, "0", limit=4)
    with pytest.raises(Unprocessable, match="expected 4 bytes, got 3"):
        await blobs.receive(body(b"hal"), sha256_hex(b"hal"), sha256_of, CTX, "0", limit=4)
    with pytest.raises(Unprocessable, match="digest: expected"):
        await blobs.receive(body(b"hall"), sha256_hex(b"half"), sha256_of, CTX, "0", limit=4)
    assert (blobs.names(), list(blobs.listing())) == ([], [])


def test_a_bit_that_flips_where_a_part_lies_is_found_when_it_is_read(blobs: Blobs) -> None:
    store(blobs, b"part", CTX, SILO, "00000")
    check_parts(blobs, CTX, SILO, ["00000"], [sha256_hex(b"part")])
    store(blobs, b"qart", CTX, SILO, "00000")
    with pytest.raises(Unprocessable, match="part 0 here is not the one the manifest names"):
        check_parts(blobs, CTX, SILO, ["00000"], [sha256_hex(b"part")])
    with pytest.raises(Unprocessable, match="not the ones that were signed for"):
        checked(blobs.read(CTX, SILO, "00000"), sha256_hex(b"part"), "part")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "a\\b", "a\0b", "a\nb"])
def test_no_name_leads_out_of_the_store(blobs: Blobs, name: str) -> None:
    for call in (blobs.read, blobs.size, blobs.exists, blobs.scrub):
        with pytest.raises(NotFound, match="expected plain names"):
            call("ctx", name)
    with blobs.draft() as draft, pytest.raises(NotFound, match="expected plain names"):
        draft.commit_new("ctx", name)


def test_scrubbing_takes_all_below_and_nothing_beside(blobs: Blobs) -> None:
    for segments in (("ctx", "a", "0"), ("ctx", "b", "0"), ("ctx-2", "a", "0"), ("model",)):
        store(blobs, b"x", *segments)
    assert {(one.segments, one.size) for one in blobs.listing()} >= {(("ctx", "a", "0"), 1), (("model",), 1)}
    blobs.scrub("ctx")
    blobs.scrub("model")
    blobs.scrub("never-there")
    assert blobs.names() == ["ctx-2"]
    with pytest.raises(NotFound, match="there is no such file"):
        blobs.read("ctx", "a", "0")


def test_of_two_who_write_one_name_at_once_one_is_first(blobs: Blobs) -> None:
    won: list[bool] = []

    def write(raw: bytes) -> None:
        with blobs.draft() as draft:
            draft.write(raw)
            won.append(draft.commit_new("ctx", "0"))

    threads = [threading.Thread(target=write, args=(bytes([number]),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, False, False, True]


def test_a_large_object_goes_in_several_parts_and_is_not_replaced(endpoint: str, tmp_path: Path) -> None:
    blobs = S3Blobs(bucket_of(settings_of(endpoint)), "a/large", tmp_path)
    raw = bytes(1 << 20) * 17
    assert len(raw) > SINGLE_BYTES
    for new in (True, False):
        with blobs.draft() as draft:
            draft.write(raw)
            assert draft.commit_new("model") is new
    assert sha256_of(blobs.chunks("model")) == sha256_hex(raw)
    assert max(len(chunk) for chunk in blobs.chunks("model", start=1 << 20)) < len(raw)


def test_no_credential_is_shown(endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_of(endpoint)
    blobs = S3Blobs(bucket_of(settings), "a", tmp_path)
    gone = S3Blobs(
        S3Store("federation", endpoint="http://127.0.0.1:9", access_key_id="key", secret_access_key=SECRET,
                client_options={"allow_http": True}, retry_config={"max_retries": 0}), "a", tmp_path / "g",
    )  # fmt: skip
    with pytest.raises(BlobsAway) as away:
        gone.read("model")
    assert SECRET not in f"{settings!r} {blobs!r} {away.value} {caplog.text} {settings.model_dump_json()}"


def test_a_bucket_that_cannot_be_used_ends_the_start_by_name(endpoint: str, tmp_path: Path) -> None:
    def asking(blobs: BlobSettings) -> AggregatorSettings:
        return AggregatorSettings(state_dir=tmp_path, listen="127.0.0.1:0", blobs=blobs)

    with pytest.raises(ConfigurationError, match="write, read and delete under s3://nowhere/a"):
        Stores(asking(settings_of(endpoint).model_copy(update={"url": "s3://nowhere/a"})))
    stores = Stores(asking(settings_of(endpoint)))
    assert isinstance(stores.open("parts"), S3Blobs)
    assert stores.assert_usable() == "takes objects"


def test_a_credential_that_is_not_there_ends_the_start(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_S3_SECRET")
    with pytest.raises(ConfigurationError, match=r"blobs\.secret_key: expected the environment variable"):
        bucket_of(settings_of(endpoint))


@pytest.mark.parametrize("endpoint_", ["http://minio.example.org:9000", "http://10.0.0.1"])
def test_no_part_crosses_the_network_without_tls(endpoint_: str) -> None:
    with pytest.raises(ValueError, match="expected https://"):
        settings_of(endpoint_)

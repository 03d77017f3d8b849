"""A bucket behind moto's server over HTTP, and the settings by which a server finds it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from moto.server import ThreadedMotoServer

from aggregator.blob_settings import BlobSettings

SECRET = "the-secret-access-key-of-the-bucket"


@contextmanager
def bucket() -> Iterator[str]:
    """The endpoint of one that is called ``federation``."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        scope = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"
        httpx.put(f"{address}/federation", headers={"Authorization": scope}).raise_for_status()
        yield address
        server.stop()


def settings_of(endpoint: str, prefix: str = "a") -> BlobSettings:
    """A prefix of it; the credentials are in the environment under names of the test's own."""
    return BlobSettings.model_validate(
        {
            "url": f"s3://federation/{prefix}",
            "endpoint": endpoint,
            "access_key": "env:TEST_S3_KEY",
            "secret_key": "env:TEST_S3_SECRET",
        }
    )


def give_credentials(environment: pytest.MonkeyPatch) -> None:
    """Put them there."""
    environment.setenv("TEST_S3_KEY", "key")
    environment.setenv("TEST_S3_SECRET", SECRET)

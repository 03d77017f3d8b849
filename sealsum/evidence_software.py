"""What is installed where a pack is made: versions for people, a CycloneDX bill of materials for tools."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cryptography.hazmat.backends.openssl.backend import backend
from cryptography.hazmat.primitives.hashes import MD5
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from privacy.errors import ConfigurationError

IMAGE_VARIABLE = "SEALSUM_IMAGE_DIGEST"
_PACKAGES = (
    "sealsum",
    "cryptography",
    "dp-accounting",
    "fastapi",
    "httpx",
    "numpy",
    "opacus",
    "pydantic",
    "rfc8785",
    "scipy",
    "sqlalchemy",
    "torch",
    "uvicorn",
)


def versions() -> dict[str, Any]:
    """``software/versions.json``: what a claim depends on most."""
    installed = {}
    for name in _PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that this machine does not need
    return {
        "scope": "the machine that exported this pack",
        "openssl": {"version": backend.openssl_version_text(), "fips": fips_mode()},
        "image": image_digest(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": installed,
    }


def fips_mode() -> bool:
    """Whether the OpenSSL that signs and encrypts here is in FIPS mode: then it has no MD5."""
    return not backend.hash_supported(MD5())  # noqa: S303 - asked about, never used


def image_digest() -> str | None:
    """Digest of the container image that this runs in, as whoever deployed it says; ``None`` outside one.

    Raises:
        ConfigurationError: it is no digest.
    """
    said = os.environ.get(IMAGE_VARIABLE)
    if said is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", said):
        raise ConfigurationError(f"{IMAGE_VARIABLE}: expected sha256: and 64 hex digits, got {said[:80]!r}")
    return said


def bill_of_materials(created_at: str) -> dict[str, Any]:
    """``software/sbom.cdx.json``: every installed distribution; the same installation gives the same bill."""
    found = _installed()
    components = [
        Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"pkg:pypi/{name}@{version}",
            purl=PackageURL("pypi", name=name, version=version),
        )
        for name, version in found
    ]
    listed = "\n".join(f"{name}=={version}" for name, version in found)
    bom = Bom(
        components=components,
        serial_number=uuid5(NAMESPACE_URL, f"sealsum:{created_at}:{listed}"),
        metadata=BomMetaData(
            timestamp=datetime.strptime(created_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        ),
    )
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return document


@cache
def _installed() -> Sequence[tuple[str, str]]:
    """Name and version of each distribution, sorted. Read once: a process keeps what it was started with."""
    return sorted({(one.name, one.version) for one in metadata.distributions() if one.name})

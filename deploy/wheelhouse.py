"""Make a folder of wheels ready for a machine without a network: its bill of materials, and checksums of all.

python deploy/wheelhouse.py FOLDER     (make wheelhouse builds the wheels first)

Writes ``sbom.cdx.json`` (CycloneDX 1.6: each wheel with version, licence and SHA-256) and ``SHA256SUMS``,
which ``sha256sum --check`` reads. The same wheels give the same bytes.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

SBOM, SUMS = "sbom.cdx.json", "SHA256SUMS"
_READ_BYTES = 1 << 20
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def component_of(wheel: Path) -> Component:
    """What a wheel says of itself, and its digest."""
    with zipfile.ZipFile(wheel) as archive:
        [place] = [one for one in archive.namelist() if _METADATA.fullmatch(one)]
        said = HeaderParser().parsestr(archive.read(place).decode("utf-8"))
    name, version = str(said["Name"]), str(said["Version"])
    licence = said.get("License-Expression") or said.get("License") or ""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pkg:pypi/{name}@{version}",
        purl=PackageURL("pypi", name=name, version=version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest_of(wheel))],
        licenses=[LicenseFactory().make_from_string(licence.splitlines()[0][:200])] if licence else [],
    )


def digest_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def finish(folder: Path) -> int:
    """Write both files; how many wheels there are."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise SystemExit(f"{folder}: expected wheels, got none; run: make wheelhouse")
    bom = Bom(components=[component_of(wheel) for wheel in wheels])
    bom.serial_number = None  # drawn at random, it would make each bill another one
    bom.metadata.timestamp = None
    (folder / SBOM).write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n", encoding="utf-8")
    listed = [*wheels, folder / SBOM]
    lines = [f"{digest_of(path)}  {path.name}\n" for path in listed]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return len(wheels)


if __name__ == "__main__":
    count = finish(Path(sys.argv[1]))
    sys.stdout.write(f"{sys.argv[1]}: {count} wheels, {SBOM}, {SUMS}\n")

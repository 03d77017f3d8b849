"""Names that must not be mixed up: a silo is not a string."""

from __future__ import annotations

from typing import Annotated, NewType

from pydantic import StringConstraints

PartyId = NewType("PartyId", str)
SiloId = NewType("SiloId", PartyId)
ServerId = NewType("ServerId", PartyId)
JobId = NewType("JobId", str)
Digest = NewType("Digest", str)
"""64 lower-case hex digits of a SHA-256."""
Context = NewType("Context", Digest)
"""What a round's messages are bound to: the digest of its whole plan."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
HEX32_PATTERN = r"^[0-9a-f]{64}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A party, job or federation name: safe as a file name and as a URL segment."""
HexDigest = Annotated[Digest, StringConstraints(pattern=HEX32_PATTERN)]
HexContext = Annotated[Context, StringConstraints(pattern=HEX32_PATTERN)]
HexKey = Annotated[str, StringConstraints(pattern=HEX32_PATTERN)]
"""A raw Ed25519 public key, 32 bytes as hex."""
SiloName = Annotated[SiloId, StringConstraints(pattern=NAME_PATTERN)]
ServerName = Annotated[ServerId, StringConstraints(pattern=NAME_PATTERN)]
PartyName = Annotated[PartyId, StringConstraints(pattern=NAME_PATTERN)]
JobName = Annotated[JobId, StringConstraints(pattern=NAME_PATTERN)]

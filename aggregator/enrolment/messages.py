"""What passes between an officer, a registrar and a party that enrols. Secrets in them do not print."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen
from privacy.ids import HexDigest, Name, PartyName
from privacy.roster import Role

MAX_ENROL_BYTES = 32 << 10
MAX_ANSWER_BYTES = 64 << 10
ENROL_PATH = "/v1/enroll"
CHARTER_PATH = "/v1/charter"

Secret = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$"), Field(repr=False)]
"""256 random bits as hex; whoever has it can enrol once under the invited name."""
Pem = Annotated[str, Field(max_length=16 << 10)]


class Invitation(Frozen):
    """The one-time token file: whom to call, whom to believe, and the secret that proves the invitation."""

    federation: Name
    party: PartyName
    role: Role
    registrar: Annotated[str, StringConstraints(pattern=r"^https://[^\s/]+$", max_length=300)]
    """``https://host:port`` of the registrar."""
    ca: Pem
    """The federation's CA: the only authority this party will accept, the registrar's TLS included."""
    officers: HexDigest
    """Whose signatures on a charter this party will believe: the digest of the officers' document."""
    secret: Secret
    expires_at: str
    """RFC 3339 UTC, for the reader; the registrar decides."""


class EnrolRequest(Frozen):
    """Party → registrar: here is my invitation's secret, and a request for a certificate over my key."""

    party: PartyName
    secret: Secret
    csr: Pem
    """PKCS#10, signed by the key it asks for; its subject is ignored."""
    sealing_key: Annotated[str, Field(max_length=2432)] = ""
    """Share servers only: hex of the ML-KEM-768 ‖ X25519 public keys."""
    delegation: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{208})?$")] = ""
    """The identity key's word for the key in ``csr``, where that is another one (in a token)."""


class EnrolAnswer(Frozen):
    """Registrar → party: its certificate, then the CA's."""

    chain: Pem

"""What a call with an ``Idempotency-Key`` was answered, so that the same call again is answered the same.

For calls that no name of their own tells apart (draft-ietf-httpapi-idempotency-key-header-07). An answer may
hold a secret that is shown once, so it is kept sealed under the caller's key: this server can open it for
whoever repeats the key, and for nobody else. Knows no HTTP.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import delete, insert, select

from aggregator.store import Reader, Writer
from aggregator.tables import repeats
from privacy.canonical import sha256_hex
from privacy.errors import MalformedMessage, Unprocessable
from privacy.ids import Digest

KEPT_S: Final = 86_400
"""A call that is repeated later is a new one."""
_HEADER: Final = re.compile(r'"([0-9A-Za-z-]{32,64})"', re.ASCII)
_NONCE_BYTES: Final = 12


@dataclass(frozen=True)
class RepeatKey:
    """What a caller drew at random for one call: 122 bits or more, as a UUID (version 4) or in hex."""

    text: str = field(repr=False)

    @classmethod
    def of_header(cls, value: str | None) -> Self | None:
        """The header's key; none where the caller sent none, and sends the call once.

        Raises:
            MalformedMessage: it is not as it must be.
        """
        if value is None:
            return None
        match = _HEADER.fullmatch(value)
        if match is None:
            raise MalformedMessage(
                'Idempotency-Key: expected 32 to 64 letters, digits or "-", drawn at random, in double '
                "quotes, such as a UUID"
            )
        return cls(match[1])

    @property
    def name(self) -> Digest:
        """Under what its answer is kept; the key itself is not."""
        return sha256_hex(b"sealsum/repeat/name/v1\x00" + self.text.encode())

    @property
    def sealing(self) -> AESGCM:
        """What opens its answer. HKDF (RFC 5869) without a salt: the key is uniform."""
        derived = HKDF(SHA256(), 32, None, b"sealsum/repeat/answer/v1").derive(self.text.encode())
        return AESGCM(derived)


def answered_before(view: Reader, key: RepeatKey, call: Digest, now: int) -> bytes | None:
    """The answer to this very call, if it was made under this key lately. ``call`` is a digest of who called
    what with which body.

    Raises:
        Unprocessable: another call was made under this key.
    """
    query = select(repeats).where(repeats.c.key == key.name, repeats.c.at > now - KEPT_S)
    row = view.connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.call != call:
        raise Unprocessable("Idempotency-Key: another call was made under it; draw a new one for this call")
    nonce, sealed = row.answer[:_NONCE_BYTES], row.answer[_NONCE_BYTES:]
    return key.sealing.decrypt(nonce, sealed, call.encode())


def remember(transaction: Writer, key: RepeatKey, call: Digest, answer: bytes, now: int) -> None:
    """Keep an answer in the transaction of what it tells of; older ones that are over go."""
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + key.sealing.encrypt(nonce, answer, call.encode())
    transaction.connection.execute(delete(repeats).where(repeats.c.at <= now - KEPT_S))
    transaction.connection.execute(insert(repeats).values(key=key.name, call=call, answer=sealed, at=now))

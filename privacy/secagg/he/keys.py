"""The silos' one secret key of a job: made by one silo, wrapped to each other silo, never to a server.

1. The maker draws a key and commits to it by its id, a hash that every silo can recompute.
2. It seals the key to each other silo by HPKE (RFC 9180), bound to federation, epoch, job, parameters, maker,
   recipient and id; the envelope around it is signed, for HPKE names no sender.
3. Each silo unseals, recomputes the id and, with it, signs what it encrypts: a maker who gave two silos
   different keys gave them different ids, and the aggregator refuses to mix those.

A new job or roster epoch needs a new key: a silo that has left must not read on.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

from privacy.canonical import sha256_hex
from privacy.errors import MalformedMessage, NotAllowed, OutOfOrder
from privacy.identity import SealingKey
from privacy.ids import Digest, SiloId
from privacy.sealing import seal, unseal
from privacy.secagg.he.door import Cipher, generate_secret
from privacy.secagg.he.messages import WrappedKey
from privacy.secagg.he.parameters import HeParameters, parameters_named


@dataclass(frozen=True)
class KeyUse:
    """What a key is good for: one federation, one epoch of its roster, one job, one row of parameters."""

    federation: str
    epoch: int
    job: Digest
    """Digest of the job: keys are not kept longer than the job that they serve."""
    parameters: HeParameters


@dataclass(frozen=True)
class HeKey:
    """A secret key and its use. Its ``repr`` shows the id only; the bytes are its packed coefficients."""

    use: KeyUse = field(repr=False)
    _secret: bytes = field(repr=False)
    id: Digest

    def cipher(self, contributors: int) -> Cipher:
        """The cipher under this key for a cohort of that size."""
        return Cipher(self.use.parameters, self._secret, contributors)

    @property
    def secret(self) -> bytes:
        """The key's bytes, for wrapping and for worker processes. Never log or store them elsewhere."""
        return self._secret


def make_key(use: KeyUse) -> HeKey:
    """A fresh key for one job."""
    return restore_key(use, generate_secret(use.parameters))


def restore_key(use: KeyUse, secret: bytes) -> HeKey:
    """A key from the bytes that its silo kept.

    Raises:
        MalformedMessage: they are not a secret key of these parameters.
    """
    key = HeKey(use, secret, _key_id(use, secret))
    key.cipher(contributors=1)
    return key


def wrap_key(key: HeKey, maker: SiloId, silo: SiloId, sealing_public_hex: str) -> WrappedKey:
    """Seal a key to one silo's public sealing key."""
    info = _binding(key.use, maker, silo, key.id)
    return WrappedKey(
        federation=key.use.federation,
        epoch=key.use.epoch,
        job=key.use.job,
        parameters=key.use.parameters.name,
        key=key.id,
        maker=maker,
        silo=silo,
        sealed=base64.b64encode(seal(key.secret, sealing_public_hex, info)).decode(),
    )


def unwrap_key(wrapped: WrappedKey, use: KeyUse, maker: SiloId, silo: SiloId, sealing: SealingKey) -> HeKey:
    """Take a key that another silo made, in this order:

    (1) its parameters are allow-listed and those agreed; (2) it is for this federation, epoch
    and job, so that yesterday's key does not come back; (3) it comes from the agreed maker, to this silo;
    (4) it opens with our sealing key, under all of that; (5) it is the key whose id is announced;
    (6) SEAL accepts it as a secret key of these parameters.

    ``maker`` is the verified sender of the envelope.

    Raises:
        Unprocessable: (1). OutOfOrder: (2). NotAllowed: (3). MalformedMessage: (4) to (6).
    """
    # (1)
    if parameters_named(wrapped.parameters) != use.parameters:
        raise OutOfOrder(f"key.parameters: expected {use.parameters.name}, got {wrapped.parameters}")
    # (2)
    if (wrapped.federation, wrapped.epoch, wrapped.job) != (use.federation, use.epoch, use.job):
        raise OutOfOrder(
            f"key: expected epoch {use.epoch} of {use.federation}, job {use.job[:16]}…, "
            f"got epoch {wrapped.epoch} of {wrapped.federation}, job {wrapped.job[:16]}…"
        )
    # (3)
    if (wrapped.maker, wrapped.silo) != (maker, silo):
        raise NotAllowed(
            f"key: expected one from {maker} to {silo}, got one from {wrapped.maker} to {wrapped.silo}"
        )
    # (4)
    try:
        sealed = base64.b64decode(wrapped.sealed, validate=True)
    except binascii.Error as error:
        raise MalformedMessage("key.sealed: expected base64") from error
    secret = unseal(sealed, sealing, _binding(use, maker, silo, wrapped.key))
    # (5)
    if _key_id(use, secret) != wrapped.key:
        raise MalformedMessage("key.key: it is not the id of the sealed key")
    # (6)
    return restore_key(use, secret)


def _use_bytes(use: KeyUse) -> bytes:
    """Names hold no zero byte (``privacy.ids.NAME_PATTERN``), so that the form is unambiguous."""
    return b"\x00".join(
        [use.federation.encode(), str(use.epoch).encode(), use.job.encode(), use.parameters.name.encode()]
    )


def _key_id(use: KeyUse, secret: bytes) -> Digest:
    """A public commitment: the key has thousands of bits of entropy, so that its hash hides it."""
    return sha256_hex(b"sealsum/he/key/v1\x00" + _use_bytes(use) + b"\x00" + secret)


def _binding(use: KeyUse, maker: SiloId, silo: SiloId, key: Digest) -> bytes:
    """What a wrapped key is good for."""
    return b"\x00".join(
        [b"sealsum/he/wrap/v1", _use_bytes(use), maker.encode(), silo.encode(), bytes.fromhex(key)]
    )

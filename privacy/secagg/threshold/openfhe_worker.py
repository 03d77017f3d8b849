"""OpenFHE behind a pipe: what runs in the worker process, on any CPython from 3.10 with openfhe and numpy.

One self-contained file: it imports nothing of Sealsum, so that it runs where Sealsum does not. It reads
frames from stdin and answers on stdout: 4 bytes of length (big-endian), a JSON header, then the blobs whose
sizes the header lists. Arrays are little-endian; polynomials are uint64[towers, degree], in evaluation form.
It keeps no key between requests, writes no file and logs nothing.

No peer's bytes reach OpenFHE's parser. What is parsed are streams that this process wrote itself, with
coefficients replaced, and ``privacy.secagg.threshold.polynomials`` has checked those against the moduli.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

MAX_HEADER = 1 << 16
MAX_BLOB = 1 << 28
TAG = "sealsum"
FAILURES = (RuntimeError, TypeError, ValueError, IndexError, KeyError, MemoryError, OverflowError)
"""What OpenFHE's C++ exceptions become, and what a request that is not one of ours ends in."""
OFF_GRID = 0.45
"""CKKS: a decryption farther from an integer than this was not made by these keys or this protocol."""


class Refused(Exception):
    """The request cannot be answered; the text holds numbers and names only, no values."""


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], list[bytes]] | None:
    """One frame, or ``None`` at the end of the stream."""
    length = stream.read(4)
    if not length:
        return None
    size = int.from_bytes(length, "big")
    if size > MAX_HEADER:
        raise Refused("frame: header too long")
    header = json.loads(stream.read(size))
    sizes = header.pop("sizes")
    if any(not 0 <= each <= MAX_BLOB for each in sizes):
        raise Refused("frame: blob too long")
    return header, [stream.read(each) for each in sizes]


def write_frame(stream: BinaryIO, header: dict[str, Any], blobs: list[bytes]) -> None:
    """Write one frame and flush it."""
    sizes = [len(blob) for blob in blobs]
    head = json.dumps({**header, "sizes": sizes}, sort_keys=True, separators=(",", ":")).encode()
    stream.write(len(head).to_bytes(4, "big") + head)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


class Template:
    """A stream that OpenFHE wrote, and where in it the coefficients of each polynomial's towers lie."""

    def __init__(self, openfhe: Any, instance: Any, towers: int, degree: int) -> None:
        """Find the coefficients: the JSON form names them in the order in which the binary form has them.

        Raises:
            Refused: this build writes another form than the one understood here.
        """
        self._fhe = openfhe
        self._raw = self._written(instance)
        listed = re.findall(r'"v":\s*\[([0-9,\s"]+)\]', openfhe.Serialize(instance, openfhe.JSON))
        runs = [np.array(re.findall(r"\d+", run), dtype="<u8") for run in listed]
        runs = [run for run in runs if len(run) == degree]
        if not runs or len(runs) % towers:
            raise Refused(f"openfhe: expected polynomials of {towers} × {degree} coefficients in its streams")
        self._degree, self._towers, self.polynomials = degree, towers, len(runs) // towers
        self._places: list[int] = []
        for run in runs:
            place = self._raw.find(run.tobytes())
            if place < 0 or self._raw.find(run.tobytes(), place + 1) >= 0:
                raise Refused("openfhe: coefficients are not where its streams are expected to have them")
            self._places.append(place)
        ends = [0, *(place + 8 * degree for place in self._places)]
        starts = [*self._places, len(self._raw)]
        self._between = [slice(end, start) for end, start in zip(ends, starts, strict=True)]

    def stream(self, polynomials: np.ndarray) -> bytes:
        """A stream with these coefficients, uint64[polynomials, towers, degree]."""
        flat = polynomials.reshape(-1, self._degree)
        raw = bytearray(self._raw)
        for place, tower in zip(self._places, flat, strict=True):
            raw[place : place + 8 * self._degree] = tower.astype("<u8").tobytes()
        return bytes(raw)

    def _written(self, instance: Any) -> bytes:
        """Its stream, under one tag for all: OpenFHE's random tags would say which keys belong together."""
        instance.SetKeyTag(TAG)
        return bytes(self._fhe.Serialize(instance, self._fhe.BINARY))

    def coefficients(self, instance: Any) -> np.ndarray:
        """uint64[polynomials, towers, degree] of an object of the same kind."""
        raw = self._written(instance)
        if len(raw) != len(self._raw) or any(raw[part] != self._raw[part] for part in self._between):
            raise Refused("openfhe: a stream that differs from its kind in more than its coefficients")
        towers = [np.frombuffer(raw, dtype="<u8", count=self._degree, offset=place) for place in self._places]
        return np.stack(towers).reshape(self.polynomials, self._towers, self._degree)


class Engine:
    """One row's context and the streams of its four kinds of object. Holds no party's key."""

    def __init__(self, openfhe: Any, row: dict[str, Any]) -> None:
        """Build the context; OpenFHE itself is asked to insist on 128 bits.

        Raises:
            Refused: it refuses the row, or comes to other moduli than those pinned.
        """
        self._fhe = openfhe
        self._bfv, self._degree = row["scheme"] == "bfv", row["degree"]
        self._moduli = [int(each) for each in row["moduli"]]
        self._context = self._made(row)
        for feature in (openfhe.PKE, openfhe.LEVELEDSHE, openfhe.MULTIPARTY):
            self._context.Enable(feature)
        # Throw-away keys, for the form of their streams alone. It depends on where an object comes from, so
        # each kind is taken from the path on which it will be made.
        self._public = self._template(self._context.KeyGen().publicKey)
        shape = (2, len(self._moduli), self._degree)
        filler = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64).reshape(shape)
        for _ in range(2):
            pair = self._context.MultipartyKeyGen(self._public_key(*filler), False, True)
            self._public, self._secret = self._template(pair.publicKey), self._template(pair.secretKey)
        block = np.ones(self._degree, dtype=np.int64)
        self._sealed = self._template(self._context.Encrypt(self._public_key(*filler), self._encode(block)))
        partial = self._context.MultipartyDecryptMain(
            [self._ciphertext(filler)], self._secret_key(filler[:1])
        )[0]
        self._partial = self._template(partial)
        found = re.findall(r'"m":\s*\{\s*"v":\s*"?(\d+)', openfhe.Serialize(pair.publicKey, openfhe.JSON))
        if [int(each) for each in found] != 2 * self._moduli:
            raise Refused("openfhe: it comes to other moduli than the row pins")
        kinds = (self._public, self._secret, self._sealed, self._partial)
        if [each.polynomials for each in kinds] != [2, 1, 2, 1]:
            raise Refused("openfhe: its objects have another number of polynomials than expected")

    def _made(self, row: dict[str, Any]) -> Any:
        fhe, bfv = self._fhe, self._bfv
        wanted = fhe.CCParamsBFVRNS() if bfv else fhe.CCParamsCKKSRNS()
        if bfv:
            wanted.SetPlaintextModulus(int(row["plain_modulus"]))
            wanted.SetMultipartyMode(fhe.NOISE_FLOODING_MULTIPARTY)
        else:
            wanted.SetBatchSize(self._degree // 2)
            wanted.SetFirstModSize(self._moduli[0].bit_length())
            wanted.SetScalingTechnique(fhe.FIXEDMANUAL)
            wanted.SetCKKSDataType(fhe.COMPLEX)
        wanted.SetRingDim(self._degree)
        wanted.SetMultiplicativeDepth(0)
        wanted.SetScalingModSize(row["scaling_bits"])
        wanted.SetKeySwitchTechnique(fhe.BV)
        wanted.SetSecretKeyDist(fhe.UNIFORM_TERNARY)
        wanted.SetSecurityLevel(fhe.HEStd_128_classic)
        try:
            return fhe.GenCryptoContext(wanted)
        except RuntimeError as error:
            raise Refused("openfhe: it refuses the row's parameters at 128 bits") from error

    def _encode(self, block: np.ndarray) -> Any:
        if self._bfv:
            return self._context.MakePackedPlaintext(block)
        return self._context.MakeCKKSPackedPlaintext(block.astype(np.float64).view(np.complex128))

    def _polynomials(self, raw: bytes, each: int) -> np.ndarray:
        """uint64[count, each, towers, degree]; every coefficient below its modulus."""
        size = 8 * self._degree * len(self._moduli) * each
        if not raw or len(raw) % size:
            raise Refused("request: expected whole polynomials")
        read = np.frombuffer(raw, dtype="<u8").reshape(-1, each, len(self._moduli), self._degree)
        if np.any(read >= np.array(self._moduli, dtype=np.uint64)[None, None, :, None]):
            raise Refused("request: a coefficient is not below its modulus")
        return read

    def _template(self, instance: Any) -> Template:
        return Template(self._fhe, instance, len(self._moduli), self._degree)

    def _ciphertext(self, polynomials: np.ndarray) -> Any:
        return self._fhe.DeserializeCiphertextString(self._sealed.stream(polynomials), self._fhe.BINARY)

    def _secret_key(self, polynomials: np.ndarray) -> Any:
        return self._fhe.DeserializePrivateKeyString(self._secret.stream(polynomials), self._fhe.BINARY)

    def _public_key(self, body: np.ndarray, common: np.ndarray) -> Any:
        raw = self._public.stream(np.stack([body, common]))
        return self._fhe.DeserializePublicKeyString(raw, self._fhe.BINARY)

    def keygen(self, blobs: list[bytes]) -> list[bytes]:
        """[a] → [secret share, public share]: fresh, over the common a (star topology, never the chain)."""
        (common,) = self._polynomials(blobs[0], 1)[0]
        base = self._public_key(np.zeros_like(common), common)
        pair = self._context.MultipartyKeyGen(base, False, True)
        public = self._public.coefficients(pair.publicKey)
        if not np.array_equal(public[1], common):
            raise Refused("openfhe: a fresh share is not over the common polynomial it was given")
        secret = self._secret.coefficients(pair.secretKey)
        return [secret.tobytes(), public[0].tobytes()]

    def encrypt(self, blobs: list[bytes]) -> list[bytes]:
        """[joint key, a, int64 blocks] → [ciphertexts], each c0 then c1."""
        (joint,), (common,) = self._polynomials(blobs[0], 1)[0], self._polynomials(blobs[1], 1)[0]
        key = self._public_key(joint, common)
        blocks = np.frombuffer(blobs[2], dtype="<i8").reshape(-1, self._degree)
        sealed = []
        for block in blocks:
            ciphertext = self._context.Encrypt(key, self._encode(block))
            sealed.append(self._sealed.coefficients(ciphertext).tobytes())
        return [b"".join(sealed)]

    def partial(self, blobs: list[bytes]) -> list[bytes]:
        """[secret share, c1 of sums] → [c1·s + flooding noise]."""
        key = self._secret_key(self._polynomials(blobs[0], 1)[0])
        answers = []
        for (mask,) in self._polynomials(blobs[1], 1):
            ciphertext = self._ciphertext(np.stack([np.zeros_like(mask), mask]))
            answer = self._context.MultipartyDecryptMain([ciphertext], key)[0]
            answers.append(self._partial.coefficients(answer).tobytes())
        return [b"".join(answers)]

    def fuse(self, blobs: list[bytes]) -> list[bytes]:
        """[c0 + all partial decryptions] → [int64 blocks], CKKS rounded to integers before they leave."""
        blocks = []
        for (fused,) in self._polynomials(blobs[0], 1):
            stream = self._partial.stream(fused[None])
            ciphertext = self._fhe.DeserializeCiphertextString(stream, self._fhe.BINARY)
            plain = self._context.MultipartyDecryptFusion([ciphertext])
            blocks.append(self._decode(plain))
        return [np.stack(blocks).astype("<i8").tobytes()]

    def _decode(self, plain: Any) -> np.ndarray:
        if self._bfv:
            plain.SetLength(self._degree)
            return np.array(plain.GetPackedValueArray(), dtype=np.int64)
        plain.SetLength(self._degree // 2)
        noisy = np.array(plain.GetCKKSPackedValueArray(), dtype=np.complex128).view(np.float64)
        rounded = np.rint(noisy)
        if not np.all(np.abs(noisy - rounded) < OFF_GRID):
            raise Refused("off-grid")
        return rounded.astype(np.int64)


def answer(
    openfhe: Any, engines: dict[str, Engine], header: dict[str, Any], blobs: list[bytes]
) -> list[bytes]:
    """Do what one request asks."""
    row = header["row"]
    name = json.dumps(row, sort_keys=True)
    if name not in engines:
        engines[name] = Engine(openfhe, row)
    engine = engines[name]
    if header["op"] == "open":
        return []
    if header["op"] not in OPERATIONS:
        raise Refused("request: there is no such operation")
    return OPERATIONS[header["op"]](engine, blobs)


OPERATIONS = {each.__name__: each for each in (Engine.keygen, Engine.encrypt, Engine.partial, Engine.fuse)}


def main() -> int:
    """Serve until stdin ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not write keys to a disk
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what C++ prints must not run into the frames
    try:
        openfhe = import_module("openfhe")  # here, so that a failure can be reported as an answer
    except (ImportError, OSError) as error:
        write_frame(stdout, {"error": "import", "text": f"{type(error).__name__}: {error}"[:300]}, [])
        return 1
    write_frame(stdout, {"openfhe": str(getattr(openfhe, "__version__", "unknown"))}, [])
    engines: dict[str, Engine] = {}
    while (frame := read_frame(stdin)) is not None:
        try:
            blobs = answer(openfhe, engines, *frame)
        except Refused as refusal:
            write_frame(stdout, {"error": "refused", "text": str(refusal)}, [])
        except FAILURES as error:
            write_frame(stdout, {"error": "failed", "text": type(error).__name__}, [])
        else:
            write_frame(stdout, {"ok": 1}, blobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A member vouches for attacks on a finished job: fetch the job, sign what came of it, hand it in.

The signature says that the member ran them, so it goes by the member's own identity key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from pydantic import ValidationError

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import ConfigurationError, MalformedMessage, NotAllowed
from privacy.ids import Digest
from privacy.keystore import Identity, load_identity
from privacy.plan import JobSpec
from privacy.wire.attack_results import AttackOutcome, AttackResult, AttackSubject
from privacy.wire.envelope import first_fault, sign_message
from privacy.wire.job_envelope import open_job
from sealsum import __version__
from sealsum.attack.suite import Result
from silo_agent.charter_pin import CharterPin, ask_for_charter
from silo_agent.transport import FederationClient

_SUBJECT_BYTES_MAX = 32 << 20


@dataclass(frozen=True)
class Subject:
    """A finished job, as its researcher signed it, and the model that the aggregator says it ended with."""

    job: JobSpec
    model: Digest


class Voucher:
    """One member at the aggregator."""

    def __init__(self, identity: Identity, client: FederationClient) -> None:
        self._identity = identity
        self._client = client

    def subject(self, name: str, state: Path) -> Subject:
        """The job to attack: signed by a researcher of the charter in force, who is somebody else.

        Raises:
            NotAllowed: it is this member's own job. PeerFault: the aggregator's refusal, or it shows
                something that nobody signed.
        """
        charter = CharterPin(state / "charter.json", self._identity.pin).offer(ask_for_charter(self._client))
        raw = self._client.get_bytes(_path(name), limit=_SUBJECT_BYTES_MAX)
        try:
            shown = AttackSubject.model_validate_json(raw)
        except ValidationError as error:
            raise MalformedMessage(f"job {name}: {first_fault(error)}") from error
        job = open_job(shown.job, charter)
        if job.message.job != name:
            raise MalformedMessage(f"job {name}: expected it, got job {job.message.job}")
        if job.sender == self._identity.pin.party:
            raise NotAllowed(
                f"job {name}: {job.sender} asked for it; have a silo or another researcher vouch for attacks"
            )
        return Subject(job.message, Digest(shown.model))

    def hand_in(self, subject: Subject, result: Result, document: bytes, at: datetime) -> AttackResult:
        """Sign and hand in what came of it, whatever that is; ``document`` is the whole of it.

        Raises:
            PeerFault: the aggregator's refusal.
        """
        said = AttackResult(
            job=subject.job.job,
            job_digest=subject.job.digest,
            model=subject.model,
            suite=result.suite,
            version=__version__,
            results=sha256_hex(document),
            outcomes=tuple(
                AttackOutcome(attack=one.attack, protection=one.protection, verdict=one.verdict)
                for one in result.outcomes
            ),
            at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        me = self._identity.pin.party
        envelope = sign_message(said, "attack_result", subject.job.digest, me, self._identity.signing)
        self._client.put_bytes(_path(subject.job.job), canonical_bytes(envelope))
        return said


@contextmanager
def voucher(state: Path, url: str | None, proxy: str | None) -> Iterator[Voucher]:
    """The member whose state directory that is; ``url`` is needed until a charter there names the aggregator.

    Raises:
        ConfigurationError: no address is known, or it is no silo's or researcher's.
    """
    identity = load_identity(state)
    if identity.pin.role not in ("silo", "researcher"):
        raise ConfigurationError(
            f"--state: expected a silo's or a researcher's directory, got one of a {identity.pin.role}"
        )
    stored = state / "charter.json"
    if url is None and not stored.exists():
        raise ConfigurationError(f"{state}: no charter is held yet; say --aggregator https://…")
    if url is None:
        url = CharterPin(stored, identity.pin).charter.with_role("aggregator")[0].url
    with FederationClient(identity, url, proxy=proxy) as client:
        yield Voucher(identity, client)


def _path(job: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}/attacks"

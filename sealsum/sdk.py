"""The Python SDK: a researcher connects to a federation, submits a signed job, follows it, fetches its model.

with Federation.connect(Path("researcher")) as federation:
    job = federation.submit(spec, initial_model)
    for view in job.watch():
        print(view.round, view.state)
    vector = job.model()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, Conflict, MalformedMessage, OutOfOrder, SignatureRejected
from privacy.ids import NAME_PATTERN, Digest, PartyId
from privacy.keystore import Identity, load_identity, read_file
from privacy.plan import JobSpec
from privacy.query_terms import EvaluationTerms
from privacy.roster import Charter
from privacy.update import FLOAT_BYTES, model_bytes, model_digest, model_vector
from privacy.wire.envelope import Envelope, open_envelope, parse_envelope, sign_message
from privacy.wire.messages import MAX_BYTES
from sealsum.job_metrics import CurvePoint, training_curve
from sealsum.job_view import ENDED, JobView
from sealsum.served_log import ServedLog, fetch_log
from silo_agent.charter_pin import CharterPin, ask_for_charter
from silo_agent.durable import private_directory, write_durably
from silo_agent.transport import FederationClient

Dial = Callable[[Identity, str], FederationClient]
EVIDENCE_BYTES_MAX: Final = 1 << 30
VIEW_BYTES_MAX: Final = 16 << 20
WATCH_WAIT_S: Final = 30.0


class Federation:
    """A researcher's connection to the aggregator of a federation, under the officers' charter."""

    def __init__(self, identity: Identity, charter: Charter, client: FederationClient) -> None:
        self.identity = identity
        self.charter = charter
        self.client = client

    @staticmethod
    def connect(
        state: Path, *, aggregator_url: str | None = None, dial: Dial = FederationClient
    ) -> Federation:
        """Open a researcher's state directory and fetch the charter in force, after these checks:

        (1) the party enrolled as a researcher; (2) the charter is endorsed by the officers pinned then, and
        not older than the one held; (3) it lists this party as a researcher with this key.

        ``aggregator_url`` is needed once, until a charter is held that names it; given, it is dialled.
        ``dial`` makes the client: ``functools.partial(FederationClient, proxy=…)`` goes through a proxy.

        Raises:
            ConfigurationError: (1), (3), or no address is known. SignatureRejected, OutOfOrder: (2).
        """
        identity = load_identity(state)
        # (1)
        if identity.pin.role != "researcher":
            raise ConfigurationError(
                f"{state}: jobs are signed by researchers; this party enrolled as {identity.pin.role}"
            )
        path = state / "charter.json"
        pin = CharterPin(path, identity.pin)
        if aggregator_url is None and not path.exists():
            raise ConfigurationError(
                f"{state}: no charter is held yet; say where the aggregator is (--aggregator https://…), "
                "or put the officers' charter.json there"
            )
        client = dial(identity, aggregator_url or _aggregator_url(pin.charter))
        try:
            charter = pin.offer(ask_for_charter(client))  # (2)
            _must_list(charter, identity)  # (3)
        except BaseException:
            client.close()
            raise
        return Federation(identity, charter, client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def submit(
        self,
        spec: JobSpec,
        initial_model: NDArray[np.float32],
        evaluated: NDArray[np.float32] | None = None,
    ) -> JobHandle:
        """Upload the first model, float32[d], and the signed job. Doing it twice with the same job is once.

        Args:
            evaluated: the model that an evaluation is of, if the aggregator may not have it yet.

        Raises:
            ConfigurationError: the job is for another charter, or for another first model than this one.
            Conflict: a job of that name with other terms was submitted from here. PeerFault: refused.
        """
        if (spec.federation, spec.charter) != (self.charter.federation, self.charter.digest):
            raise ConfigurationError(
                f"job.charter: expected {self.charter.digest[:16]}… (epoch {self.charter.epoch} of "
                f"{self.charter.federation}), got {spec.charter[:16]}… of {spec.federation}"
            )
        raw = model_bytes(initial_model)
        digest = model_digest(spec.model, [raw])
        if digest != spec.initial_model:
            raise ConfigurationError(
                f"job.initial_model: expected the digest of the model given ({digest[:16]}…), "
                f"got {spec.initial_model[:16]}…"
            )
        envelope = self._keep_signed(spec)
        self.client.put_bytes(f"/v1/models/{digest}", raw, params={"architecture": spec.model.architecture})
        if isinstance(spec.query, EvaluationTerms) and evaluated is not None:
            under = {"architecture": spec.query.model.architecture}
            self.client.put_bytes(f"/v1/models/{spec.query.weights}", model_bytes(evaluated), params=under)
        self.client.post_envelope("/v1/jobs", envelope)
        return JobHandle(self, spec)

    def job(self, name: str) -> JobHandle:
        """A job that was submitted from this state directory.

        Raises:
            ConfigurationError: there is none of that name.
        """
        path = self._job_path(name)
        if not path.exists():
            known = sorted(entry.stem for entry in path.parent.glob("*.json"))
            raise ConfigurationError(
                f"job {name}: it was not submitted from {self.identity.directory}; "
                f"known here: {', '.join(known) or 'none'}"
            )
        return JobHandle(self, self._read_job(parse_envelope(read_file(path))))

    def server_log(self, server: str) -> ServedLog:
        """A share server's whole log and its checkpoints as it serves them, not verified."""
        url = self.charter.member(PartyId(server)).url
        with FederationClient(self.identity, url) as client:
            return fetch_log(client, EVIDENCE_BYTES_MAX)

    def _keep_signed(self, spec: JobSpec) -> Envelope:
        """Sign once and keep the bytes, so that a repeated submission sends the same ones."""
        path = self._job_path(spec.job)
        if path.exists():
            envelope = parse_envelope(read_file(path))
            if self._read_job(envelope).digest != spec.digest:
                raise Conflict(
                    f"job {spec.job}: one of that name with other terms was submitted from here; "
                    "choose another name"
                )
            return envelope
        pin = self.identity.pin
        envelope = sign_message(spec, "job", self.charter.digest, pin.party, self.identity.signing)
        private_directory(path.parent)
        write_durably(path, canonical_bytes(envelope))
        return envelope

    def _read_job(self, envelope: Envelope) -> JobSpec:
        return open_envelope(
            envelope,
            JobSpec,
            kind="job",
            context=None,  # a job of an earlier epoch stays readable; its spec names the charter it is for
            verify_key_of=lambda _sender: self.identity.signing.verify_key,  # ours, or not read here
            max_bytes=MAX_BYTES["job"],
        ).message

    def _job_path(self, name: str) -> Path:
        if not re.fullmatch(NAME_PATTERN, name):
            raise ConfigurationError(f"job: expected a name such as heart-risk, got {name!r}")
        return self.identity.directory / "jobs" / f"{name}.json"


class JobHandle:
    """One submitted job."""

    def __init__(self, federation: Federation, spec: JobSpec) -> None:
        self.federation = federation
        self.spec = spec
        self._path = f"/v1/jobs/{spec.job}"

    def view(self, after: JobView | None = None, wait_s: float = 0) -> JobView | None:
        """Where the job stands; after a view, ``None`` unless something changes within ``wait_s``. Of rounds
        that ended only those are fetched that the earlier view has not.

        Raises:
            MalformedMessage: the aggregator's answer is not a view of this job.
        """
        params = {} if after is None else {"after": str(after.version), "beyond": str(after.last_round)}
        raw = self.federation.client.long_poll(self._path, wait_s=wait_s, params=params, limit=VIEW_BYTES_MAX)
        if raw is None:
            return None
        try:
            view = JobView.model_validate_json(raw)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise MalformedMessage(
                f"job view: {'.'.join(str(step) for step in fault['loc'])}: {fault['msg']}"
            ) from error
        if view.job != self.spec.job:
            raise MalformedMessage(f"job view: expected job {self.spec.job}, got {view.job}")
        return view if after is None else view.following(after)

    def now(self) -> JobView:
        """Where the job stands now."""
        view = self.view()
        if view is None:
            raise MalformedMessage(f"{self._path}: expected a view of the job, got nothing")
        return view

    def watch(self) -> Iterator[JobView]:
        """Each change of the job as it comes, the last one being its end. Nothing is polled."""
        view = self.now()
        yield view
        while view.state not in ENDED:
            later = self.view(view, WATCH_WAIT_S)
            if later is not None and later.version > view.version:
                view = later
                yield view

    def training_curve(self) -> tuple[CurvePoint, ...]:
        """The training metrics of every opened round, where the job asks for some: noisy, and charged."""
        return training_curve(self.spec, self.now().history)

    def model(self) -> NDArray[np.float32]:
        """The job's final model, float32[d], checked against the digest it was published under.

        Raises:
            OutOfOrder: the job has not finished. SignatureRejected: other bytes than the digest names.
        """
        view = self.now()
        if view.state != "finished":
            raise OutOfOrder(
                f"job {view.job}: expected it finished, it is {view.state}"
                + (f" ({view.reason})" if view.reason else f" in round {view.round} of {view.rounds}")
            )
        return self._fetch(view.model)

    def evidence(self) -> dict[str, Any]:
        """Every signed message of the job's rounds and the aggregator's log, not verified."""
        document = self.federation.client.get_json(f"{self._path}/evidence", limit=EVIDENCE_BYTES_MAX)
        if not isinstance(document, dict):
            raise MalformedMessage("evidence: expected a JSON object")
        return document

    def _fetch(self, digest: Digest) -> NDArray[np.float32]:
        size = FLOAT_BYTES * self.spec.model.parameters
        raw = self.federation.client.get_bytes(f"/v1/models/{digest}", limit=size)
        came = model_digest(self.spec.model, [raw])
        if came != digest:
            raise SignatureRejected(f"model: expected digest {digest[:16]}…, got {came[:16]}…")
        return model_vector(self.spec.model, raw)


def _aggregator_url(charter: Charter) -> str:
    aggregators = charter.with_role("aggregator")
    if len(aggregators) != 1:
        raise ConfigurationError(f"charter: expected one aggregator, got {len(aggregators)}")
    return aggregators[0].url


def _must_list(charter: Charter, identity: Identity) -> None:
    member = charter.member(identity.pin.party)
    if (member.role, member.verify_key) != ("researcher", identity.signing.verify_key):
        raise ConfigurationError(
            f"charter (epoch {charter.epoch}): it does not list {identity.pin.party} as a researcher with "
            f"the key in {identity.directory}; ask the officers to endorse a new one"
        )

"""Carry messages between this silo and the federation's servers; who gets what is decided elsewhere."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, NotAllowed, NotFound, OutOfOrder
from privacy.ids import Context, Digest, JobId, PartyId, ServerId
from privacy.instance import Instance
from privacy.keystore import Identity
from privacy.roster import Charter, Member
from privacy.update import FLOAT_BYTES
from privacy.wire.envelope import Envelope
from privacy.wire.ledger_heads import LEDGER_HEADS_BYTES_MAX, WitnessedHeads, parse_witnessed_heads
from privacy.wire.next_round import NEXT_ROUND_BYTES_MAX, parse_next_round
from privacy.wire.readiness import QUEUE_BYTES_MAX, JobQueue, parse_queue
from silo_agent.egress import Egress
from silo_agent.outbox import Stored
from silo_agent.problems import Stopped, WentOn
from silo_agent.transport import FederationClient

POLL_S = 20.0
"""Seconds a server may hold an answer back; under the 30 s in which an agent must be able to stop."""
INLINE_BYTES = 1 << 18
"""A vector share up to this size goes along with its manifest, a larger one ahead of it, part by part."""


class Delivery:
    """Connections to the aggregator and to every share server of a charter."""

    def __init__(
        self,
        identity: Identity,
        charter: Charter,
        proxy: Egress,
        stopping: threading.Event,
        instance: Instance | None = None,
    ) -> None:
        self._silo = identity.pin.party
        aggregators = charter.with_role("aggregator")
        if len(aggregators) != 1:
            raise ConfigurationError(f"charter: expected one aggregator, got {len(aggregators)}")

        def dial(member: Member) -> FederationClient:
            return FederationClient(identity, member.url, proxy=proxy, stopping=stopping, instance=instance)

        self.aggregator = dial(aggregators[0])
        self._aggregator_name = aggregators[0].id
        self._servers = {ServerId(member.id): dial(member) for member in charter.with_role("share_server")}
        self._threads = ThreadPoolExecutor(max(1, len(self._servers)), thread_name_prefix="upload")
        self._stopping = stopping
        self._ahead: tuple[Digest, bytes] | None = None
        self._offered: Envelope | None = None

    @property
    def share_servers(self) -> Mapping[ServerId, FederationClient]:
        """Connections to the share servers."""
        return self._servers

    @property
    def sent_bytes(self) -> int:
        """Bytes of request bodies that went to any server so far."""
        return sum(client.sent_bytes for client in (self.aggregator, *self._servers.values()))

    def close(self) -> None:
        """Close every connection."""
        self._threads.shutdown(wait=True)
        for client in (self.aggregator, *self._servers.values()):
            client.close()

    def next_offer(self, after: Digest | None, seen: int, wait_s: float) -> Envelope | None:
        """Wait for an open round that invites this silo, other than ``after``; ``None`` if none came, or at
        once where there are jobs beyond position ``seen`` of the queue."""
        offered, self._offered = self._offered, None
        if offered is not None and offered.context != after:
            return offered
        params = {"jobs": str(seen), **({} if after is None else {"after": after})}
        return self.aggregator.poll_envelope("/v1/offers", wait_s=wait_s, params=params)

    def job_queue(self, after: int) -> JobQueue:
        """The open jobs beyond a position of the queue; nothing in it is verified yet."""
        raw = self.aggregator.get_bytes("/v1/jobs", limit=QUEUE_BYTES_MAX, params={"after": str(after)})
        return parse_queue(raw)

    def say_ready(self, job: JobId, readiness: Envelope) -> None:
        """Tell the aggregator where a job stands here."""
        self.aggregator.post_envelope(f"/v1/jobs/{job}/readiness", readiness)

    def fetch_model(self, digest: Digest, parameters: int, scratch: Path) -> bytes:
        """The model's raw bytes, no more than its parameters take; not yet checked against its digest."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == digest and len(ahead[1]) <= FLOAT_BYTES * parameters:
            return ahead[1]
        self.aggregator.stream_to(f"/v1/models/{digest}", scratch, limit=FLOAT_BYTES * parameters)
        raw = scratch.read_bytes()
        scratch.unlink()
        return raw

    def fetch_ahead(self, digest: Digest, parameters: int, scratch: Path) -> None:
        """Fetch the model that the next round will start from, unless it came with that round's offer."""
        if self._offered is None or self._ahead is None or self._ahead[0] != digest:
            self._ahead = (digest, self.fetch_model(digest, parameters, scratch))

    def fetched(self, digest: Digest) -> bytes | None:
        """The bytes of a model that came ahead of its round; not yet checked against its digest."""
        return self._ahead[1] if self._ahead is not None and self._ahead[0] == digest else None

    def drop_ahead(self) -> None:
        """Those bytes are not the model's."""
        self._ahead = None

    def to_share_servers(self, stored: Stored, first: ServerId) -> None:
        """Send a contribution: to all share servers at once, then its manifest to the aggregator.

        The ``first`` of the plan's servers holds the vector share's parts.

        Raises:
            PeerFault: the first server's refusal, once every server has been tried.
        """
        sending = [
            self._threads.submit(self._deliver_to, server, stored, server == first)
            for server in self._servers
        ]
        faults = [error for error in (one.exception() for one in sending) if error is not None]
        if faults:
            raise faults[0]
        self.aggregator.post_envelope(f"/v1/rounds/{stored.context}/manifests", stored.contribution.manifest)

    def _deliver_to(self, server: ServerId, stored: Stored, takes_parts: bool) -> None:
        client = self._servers[server]
        along = stored.parts_within(INLINE_BYTES) if takes_parts else ()
        if along is None:
            for index, part in stored.parts():
                client.put_part(stored.context, index, part)
        submission = {
            "manifest": stored.contribution.manifest.model_dump(mode="json"),
            "sealed_seed": stored.contribution.seeds.get(server),
            "parts": [base64.b64encode(part).decode() for part in along or ()],
        }
        client.post_json(f"/v1/rounds/{stored.context}/manifests", submission)

    def witnessed_heads(self) -> dict[PartyId, WitnessedHeads]:
        """What each server of the charter has seen of this silo's ledgers; nothing of it is believed yet.

        Raises:
            Unreachable: one of them does not answer. A head that it alone has seen would stay hidden.
        """
        everyone = [(self._aggregator_name, self.aggregator)]
        everyone += [(PartyId(server), client) for server, client in self._servers.items()]
        return {
            server: parse_witnessed_heads(client.get_bytes("/v1/ledger-heads", limit=LEDGER_HEADS_BYTES_MAX))
            for server, client in everyone
        }

    def prove(self, context: Context, first: ServerId, witness: bytes, proof: Envelope) -> None:
        """Send a witness share and the manifest of the proof to the first share server; idempotent."""
        client = self._servers[first]
        client.put_bytes(f"/v1/rounds/{context}/witness", witness)
        client.post_envelope(f"/v1/rounds/{context}/proofs", proof)

    def await_step(self, context: Context, step: str) -> tuple[Envelope, ...]:
        """What a step of the round needs from the others, once the aggregator has opened it; not verified.

        Raises:
            Stopped: the agent was told to end. WentOn: the round is over, or goes on without us.
        """
        while not self._stopping.is_set():
            try:
                inbox = self.aggregator.get_envelopes(f"/v1/rounds/{context}/steps/{step}", wait_s=POLL_S)
            except (OutOfOrder, NotAllowed) as error:
                raise WentOn(f"step {step}: {error}") from error
            if inbox is not None:
                return inbox
        raise Stopped(f"round: the agent was told to end before step {step}")

    def send_step(self, context: Context, step: str, messages: Sequence[Envelope]) -> None:
        """Send this silo's messages of a step; idempotent."""
        self.aggregator.post_envelopes(f"/v1/rounds/{context}/steps/{step}", messages)

    def put_file(self, context: Context, name: str, index: int, raw: bytes) -> None:
        """Send one file of the round to the aggregator; idempotent."""
        self.aggregator.put_bytes(f"/v1/rounds/{context}/files/{name}/{index}", raw)

    def get_file(self, context: Context, name: str, index: int, limit: int) -> bytes:
        """Fetch one file of the round from the aggregator; not verified."""
        return self.aggregator.get_bytes(f"/v1/rounds/{context}/files/{name}/{index}", limit=limit)

    def job_key(self, job: JobId) -> Envelope | None:
        """A job's key as some silo sealed it to this one, not yet verified; ``None`` while there is none."""
        return self.aggregator.poll_envelope(f"/v1/jobs/{job}/he-key", wait_s=0.0)

    def offer_job_key(self, job: JobId, sealed: Sequence[Envelope]) -> None:
        """Offer a job's key, sealed to each silo.

        Raises:
            Conflict: another silo's came first.
        """
        raw = canonical_bytes([one.model_dump(mode="json") for one in sealed])
        self.aggregator.put_bytes(f"/v1/jobs/{job}/he-key", raw)

    def refuse(self, context: Context, refusal: Envelope) -> None:
        """Tell the aggregator that this silo takes no part."""
        self.aggregator.post_envelope(f"/v1/rounds/{context}/refusals", refusal)

    def wait_for_result(self, context: Context) -> Envelope | None:
        """The round's result, not yet verified; ``None`` while it is open.

        The next round's offer and its model may come with it: they are kept for ``next_offer`` and
        ``fetch_model``, whose callers judge them as if they had been asked for.
        """
        path = f"/v1/rounds/{context}/next"
        body = self.aggregator.long_poll(path, wait_s=POLL_S, limit=NEXT_ROUND_BYTES_MAX)
        if body is None:
            return None
        coming = parse_next_round(body)
        self._offered = coming.offer
        if coming.model is not None:
            self._ahead = (coming.model.digest, coming.model.raw)
        return coming.result

    def job_has_ended(self, job: str) -> bool:
        """Whether the aggregator says that a job is finished or failed."""
        try:
            view = self.aggregator.get_json(f"/v1/jobs/{job}")
        except NotFound:
            return True
        return isinstance(view, dict) and view.get("state") in ("finished", "failed")

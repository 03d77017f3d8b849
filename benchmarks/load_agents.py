"""Many silos in one process, a thread each: what a silo sends and checks in a round, without any data.

    python benchmarks/load_agents.py CONFIG.json      prints one JSON line a silo and round

A simulated silo of ``additive`` is made of the agent's own parts: connections under its own certificate,
offers, models and results checked by signature and digest, the encoding and masks, the outbox, the signed
manifest. It leaves out training, the privacy ledger and the cosigning of logs. One of the plaintext baseline
sends the same update as float32, in parts of the same size, over the same client, and neither masks, signs
nor stores anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.loader import load_threat_model
from privacy.chain import EMPTY
from privacy.ids import JobId, SiloId
from privacy.keystore import Identity, load_identity
from privacy.update import FLOAT_BYTES
from privacy.wire.envelope import Envelope, open_envelope, sign_message
from privacy.wire.job_envelope import open_job
from privacy.wire.messages import MAX_BYTES, PART_BYTES, RoundOffer
from privacy.wire.readiness import JobReadiness
from silo_agent.charter_pin import CharterPin, ask_for_charter
from silo_agent.checked_model import check_bytes
from silo_agent.delivery import Delivery
from silo_agent.egress import Egress
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Contribution, Outbox
from silo_agent.results import open_result
from silo_agent.schemes.additive import AdditiveHalf
from silo_agent.schemes.half import Seat
from silo_agent.transport import FederationClient
from silo_agent.update import FloatUpdate

LOOK_S = 0.2
POLL_S = 20.0
UPDATE_SEED = 20261130
"""The update is public: whoever measures computes the model that must come out."""
UPDATE_BOUND = 0.01


def update_of(params: int) -> NDArray[np.float32]:
    """What every silo sends in every round, float32[params] within ±``UPDATE_BOUND``."""
    drawn = np.random.default_rng(UPDATE_SEED).random(params, dtype=np.float32)
    return (drawn - np.float32(0.5)) * np.float32(2 * UPDATE_BOUND)


def say(silo: str, round_number: int) -> None:
    """A silo has a round's result."""
    line = {"event": "round", "silo": silo, "round": round_number, "at": time.time()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class FederatedSilo:
    """One silo of the federation's job."""

    def __init__(self, state: Path, url: str) -> None:
        self._state = state
        self._identity = load_identity(state)
        self._silo = SiloId(self._identity.pin.party)
        pin = CharterPin(state / "charter.json", self._identity.pin)
        with FederationClient(self._identity, url) as first:
            pin.offer(ask_for_charter(first))
        self._charter = self._identity.recognised_in(pin.charter)
        self._policies = (load_threat_model(self._charter.policy_text, self._charter.policy_parents),)
        self._delivery = Delivery(self._identity, self._charter, Egress(), threading.Event())
        self._outbox = Outbox(state / "outbox")

    def run(self, update: NDArray[np.float32], _rounds: int) -> None:
        """Approve the job, then take part in each round of it."""
        self._approve()
        after, running = None, True
        while running:
            offer = self._delivery.next_offer(after, 1, POLL_S)
            if offer is not None:
                running = self._take_part(offer, update)
                after = offer.context
        self._delivery.close()

    def _approve(self) -> None:
        while not (queue := self._delivery.job_queue(0)).jobs:
            time.sleep(LOOK_S)
        job = open_job(queue.jobs[0], self._charter).message
        ready = JobReadiness(silo=self._silo, job_digest=job.digest, decision="approved")
        signed = sign_message(ready, "readiness", job.digest, self._silo, self._identity.signing)
        self._delivery.say_ready(JobId(job.job), signed)

    def _take_part(self, envelope: Envelope, update: NDArray[np.float32]) -> bool:
        """One round; whether the job goes on."""
        offer = open_envelope(
            envelope,
            RoundOffer,
            kind="offer",
            context=None,
            verify_key_of=lambda sender: self._charter.member(sender).verify_key,
            max_bytes=MAX_BYTES["offer"],
        )
        job = open_job(offer.message.job, self._charter)
        plan, delivery = offer.message.plan, self._delivery
        raw = delivery.fetch_model(plan.model, plan.parameters, self._state / "model.part")
        model = check_bytes(job.message.model, plan.model, raw, "model").digest
        half = AdditiveHalf(
            Seat(
                plan=plan,
                silo=self._silo,
                aggregator=offer.sender,
                identity=self._identity,
                charter=self._charter,
                policies=self._policies,
                delivery=delivery,
                directory=self._state / "secrets",
            )
        )
        self._outbox.put_parts(plan.context, half.seal(EncodedUpdate(plan, FloatUpdate(update), 1.0), model))
        signed = half.manifest(EMPTY)
        contribution = Contribution(offer=envelope, manifest=signed.manifest, seeds=signed.seeds)
        half.deliver(self._outbox.complete(plan.context, contribution))
        while (answer := delivery.wait_for_result(plan.context)) is None:
            pass
        result = open_result(answer, plan, self._charter)
        self._outbox.remove(plan.context)
        say(self._silo, plan.round)
        if result.outcome != "opened":
            raise SystemExit(f"round {plan.round}: expected an opened sum, got {result.reason}")
        return result.job_state == "running"


class PlainSilo:
    """One silo of the plaintext baseline (benchmarks/load_plain.py)."""

    def __init__(self, state: Path, url: str) -> None:
        self._state = state
        self._identity: Identity = load_identity(state)
        self._silo = self._identity.pin.party
        self._client = FederationClient(self._identity, url)

    def run(self, update: NDArray[np.float32], rounds: int) -> None:
        """Take part in so many rounds."""
        raw = memoryview(update.astype("<f4", copy=False)).cast("B")
        expected = ""
        for number in range(1, rounds + 1):
            where, scratch = f"/v1/rounds/{number}", self._state / "model.part"
            self._client.stream_to(f"{where}/model", scratch, limit=FLOAT_BYTES * len(update))
            model = scratch.read_bytes()
            if expected and hashlib.sha256(model).hexdigest() != expected:
                raise SystemExit(f"round {number}: expected another model")
            for index, start in enumerate(range(0, len(raw), PART_BYTES)):
                part = bytes(raw[start : start + PART_BYTES])
                self._client.put_bytes(f"{where}/parts/{self._silo}/{index}", part)
            self._client.post_json(f"{where}/updates/{self._silo}", {})
            while (body := self._client.long_poll(f"{where}/result", wait_s=POLL_S)) is None:
                pass
            expected = json.loads(body)["model"]
            say(self._silo, number)
        self._client.close()


def main() -> None:
    """Run the silos that the file names."""
    config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    kind = {"federated": FederatedSilo, "plain": PlainSilo}[config["kind"]]
    update = update_of(config["params"])
    silos = [kind(Path(state), config["url"]) for state in config["states"]]
    sys.stdout.write(json.dumps({"event": "serving"}) + "\n")
    sys.stdout.flush()
    threads = ThreadPoolExecutor(len(silos))
    ended = [threads.submit(silo.run, update, config["rounds"]) for silo in silos]
    for one in wait(ended, return_when=FIRST_EXCEPTION).done:
        if (error := one.exception()) is not None:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(1)  # the other silos wait for a round that will not end
    signal.pause()  # until its CPU time has been read


if __name__ == "__main__":
    main()

"""Servers for one silo on loopback: HTTPS with client certificates, answering as docs/architecture.md says.

One process plays the aggregator and all share servers, and the other silos' survival is taken for granted:
what is tested is the agent. It keeps every upload so that tests can compare bytes.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from privacy.canonical import canonical_bytes
from privacy.ids import Context, Digest
from privacy.keystore import load_identity
from privacy.plan import JobSpec, RoundPlan
from privacy.transparency.witnessing import Cosigned
from privacy.update import model_digest
from privacy.wire.envelope import Envelope, parse_envelope
from privacy.wire.ledger_heads import WitnessedHead, WitnessedHeads
from privacy.wire.messages import Refusal, RoundResult
from privacy.wire.next_round import NextRound
from privacy.wire.readiness import JobQueue, JobReadiness, queue_bytes
from silo_agent.agent import Agent
from silo_agent.models.layouts import model_terms
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import read_settings
from tests.federation import Federation
from tests.silo_yaml import approving, registered

SILO = "silo-1"


class Loopback:
    """A federation whose servers all listen on one port of this process."""

    def __init__(self, directory: Path, **federation: Any) -> None:
        handler = type("Handler", (_Handler,), {})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        names = ("aggregator", "server-0", "server-1")
        self.federation = Federation(urls=dict.fromkeys(names, self.url), **federation)
        context = self.federation.identity("aggregator", directory / "aggregator").server_context
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        handler.loopback = self
        self.news = threading.Condition()
        self.offers: list[Envelope] = []
        self.queued: list[Envelope] = []
        self.plans: dict[Context, RoundPlan] = {}
        self.models: dict[str, bytes] = {}
        self.uploads: dict[str, list[bytes]] = {}
        self.refusals: list[Refusal] = []
        self.cosigned: list[Cosigned] = []
        self.readiness: list[JobReadiness] = []
        self.results: dict[str, Envelope] = {}
        self.result_of: Callable[[RoundPlan], RoundResult] = self.opened
        self.ended = False
        self.polls = 0
        self.wants_certificates = False
        """Answer 401 to whoever shows none, as servers do."""
        self.before_upload: Callable[[], None] = lambda: None
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def job(self, **changes: Any) -> JobSpec:
        """A small DP job, its first model published."""
        terms = model_terms("logistic", 2)
        raw = self.federation.initial_model(terms.parameters)
        first = model_digest(terms, [raw])
        self.models[first] = raw
        return self.federation.job_spec(**{"model": terms, "initial_model": first, **changes})

    def open_round(self, job: JobSpec, number: int = 1, **changes: Any) -> RoundPlan:
        """Offer a round of a job."""
        plan = self.federation.plan(job, number, **changes)
        self.offer(self.federation.offer(plan, self.federation.sign_job(job)), plan)
        return plan

    def offer(self, envelope: Envelope, plan: RoundPlan) -> None:
        with self.news:
            self.offers.append(envelope)
            self.plans[plan.context] = plan
            self.news.notify_all()

    def queue(self, after: int) -> JobQueue:
        """The jobs in ``queued``; those that have rounds are open too."""
        digests = {plan.job_digest for plan in self.plans.values()}
        digests |= {JobSpec.model_validate_json(job.body).digest for job in self.queued}
        newest = len(self.queued)
        return JobQueue(
            last=newest, newest=newest, open=tuple(sorted(digests)), jobs=tuple(self.queued[after:])
        )

    def opened(self, plan: RoundPlan, state: str | None = None) -> RoundResult:
        """An honest result in which everybody survived."""
        last = plan.round == plan.rounds
        return RoundResult(
            outcome="opened",
            reason="",
            survivors=plan.silos,
            model_in=plan.model,
            model_out=plan.model,
            openings=1,
            job_state=state or ("finished" if last else "running"),  # type: ignore[arg-type]  # tests lie on purpose
        )

    def end_round(self, context: str, result: RoundResult | None = None, sender: str = "aggregator") -> None:
        plan = self.plans[Context(context)]  # type: ignore[arg-type]  # a digest from a URL
        message = result or self.result_of(plan)
        with self.news:
            self.results[context] = self.federation.sign(message, "result", plan.context, sender)
            self.news.notify_all()

    def following(self, result: Envelope) -> bytes:
        """What a silo is told of a round that ended; nothing of the next one yet."""
        return NextRound(result=result, offer=None, model=None).model_dump_json().encode()

    def heads(self) -> tuple[WitnessedHead, ...]:
        """The furthest head that a server keeps: of the last manifest that came."""
        sent = [
            (Context(Digest(path.split("/")[3])), parse_envelope(bodies[0]))
            for path, bodies in self.uploads.items()
            if path.endswith("/manifests")
        ]
        offers = {offer.context: offer for offer in self.offers}
        return tuple(WitnessedHead(offer=offers[ctx], manifest=one) for ctx, one in sent[-1:])

    def wait_until(self, happened: Callable[[], bool], timeout_s: float = 60.0) -> None:
        with self.news:
            assert self.news.wait_for(happened, timeout_s), "it did not happen in time"

    def silo_files(self, directory: Path, rows: str, **settings: Any) -> Path:
        """A silo's state directory, its CSV and its ``silo.yaml``."""
        self.federation.identity(SILO, directory / "state")
        (directory / "cardio.csv").write_text(rows)
        lines = {
            "state_dir": "state",
            "aggregator_url": self.url,
            "threat_model": "demo-hospitals",
            "datasets": {"cardio": registered()},
            "approval_rules": approving("cardio"),
            "worker": {"process": False},
            **settings,
        }
        path = directory / "silo.yaml"
        path.write_text(json.dumps(lines))
        return path


def patients(count: int) -> str:
    """A CSV for ``Federation.job_spec``: synthetic patients."""
    random = np.random.default_rng(5)
    rows = [
        f"p{number},{random.integers(20, 90)},{random.integers(90, 200)},{number % 2}"
        for number in range(count)
    ]
    return "\n".join(["patient,age,pressure,num", *rows]) + "\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    loopback: Loopback

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(60)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        steps = address.path.strip("/").split("/")[1:]
        one = self.loopback
        if one.wants_certificates and not self.connection.getpeercert():  # type: ignore[attr-defined] # it is TLS
            self._problem(401, "signature-rejected")
            return
        match steps:
            case ["charter"]:
                self._answer(200, canonical_bytes(one.federation.endorsed_charter))
            case ["ledger-heads"]:
                self._answer(200, canonical_bytes(WitnessedHeads(heads=one.heads())))
            case ["offers"]:
                with one.news:
                    one.polls += 1
                    one.news.notify_all()
                after = query.get("after", [""])[0]
                self._when(lambda: next((o for o in one.offers[-1:] if o.context != after), None))
            case ["models", digest] if digest in one.models:
                self._answer(200, one.models[digest])
            case ["rounds", context, "next"]:
                self._when(lambda: one.results.get(context), one.following)
            case ["jobs"]:
                self._answer(200, queue_bytes(one.queue(int(query["after"][0]))))
            case ["jobs", _job]:
                state = "finished" if one.ended else "running"
                self._answer(200, json.dumps({"state": state}).encode())
            case _:
                self._problem(404, "not-found")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.loopback.before_upload()
        self._keep(urlsplit(self.path).path, body)
        self._answer(201, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path).path
        one = self.loopback
        context = path.split("/")[3]
        if path == "/v1/log/cosignatures":
            one.cosigned.append(Cosigned.model_validate_json(body))
        elif path.endswith("/readiness"):
            said = JobReadiness.model_validate_json(parse_envelope(body).body)
            with one.news:
                one.readiness.append(said)
                one.news.notify_all()
        elif path.endswith("/refusals"):
            refusal = Refusal.model_validate_json(parse_envelope(body).body)
            with one.news:
                one.refusals.append(refusal)
                one.news.notify_all()
        elif b'"sealed_seed"' not in body:
            self._keep(path, body)
            one.end_round(context)
        else:
            self._keep_submission(path, body)
        self._answer(202, b"")

    def _keep_submission(self, path: str, body: bytes) -> None:
        """Parts that come along are kept as if each had been put by itself."""
        said = json.loads(body)
        if said["parts"]:
            self.loopback.before_upload()
        for index, part in enumerate(said["parts"]):
            self._keep(path.replace("/manifests", f"/parts/{index}"), base64.b64decode(part))
        self._keep(path + ("#vector" if said["sealed_seed"] is None else "#seed"), body)

    def _keep(self, name: str, body: bytes) -> None:
        with self.loopback.news:
            self.loopback.uploads.setdefault(name, []).append(body)
            self.loopback.news.notify_all()

    def _when(
        self, find: Callable[[], Envelope | None], told: Callable[[Envelope], bytes] = canonical_bytes
    ) -> None:
        with self.loopback.news:
            self.loopback.news.wait_for(lambda: find() is not None, timeout=0.3)
            found = find()
        self._answer(204 if found is None else 200, b"" if found is None else told(found))

    def _problem(self, status: int, kind: str) -> None:
        self._answer(status, json.dumps({"type": f"urn:sealsum:{kind}", "title": kind}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def run_agent(config: Path) -> int:
    """A silo's agent until its job is over; its exit code."""
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    try:
        return agent.run(until_idle=True)
    finally:
        agent.close()

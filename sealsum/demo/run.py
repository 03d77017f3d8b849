"""One demo run from options to files: found and enrol, start everybody, train, fetch, export, verify.

Everything goes through the parties' own programs and the researcher's SDK; the demo adds only what no
federation has: it plays the officers, keeps the held-out patients, and compares.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console

from policies.loader import LoadedPolicy
from privacy.canonical import canonical_bytes
from privacy.keystore import read_file
from sealsum.demo.baselines_terms import BaselineAnswer, BaselineRequest
from sealsum.demo.cast import AGGREGATOR, FEDERATION, RESEARCHER, cast_of, counted_parties, share_servers_of
from sealsum.demo.closing import Trained, collect
from sealsum.demo.enrolling import found_and_enrol
from sealsum.demo.final_model import fetch_final_model
from sealsum.demo.folder import DemoFolder, prepare_folder
from sealsum.demo.following import follow
from sealsum.demo.job import DATASET, DemoTerms, demo_terms
from sealsum.demo.options import DEFAULT_EPSILON, DemoOptions
from sealsum.demo.pack import claim_of, export_pack, verify_pack
from sealsum.demo.parties import Programs, hand_out_patients, start_agents, start_servers
from sealsum.demo.patients import HOSPITALS, patients_of
from sealsum.demo.picture import draw, write_png
from sealsum.demo.ports import free_ports, loopback_without_proxy
from sealsum.demo.preflight import refuse_if_policy_does
from sealsum.demo.report import render_report
from sealsum.demo.results import DemoResult, Verdict
from sealsum.demo.scoring import HospitalFiles
from sealsum.demo.screen import Screen
from sealsum.demo.split import split_patients
from sealsum.demo.summary import Summary, summarise
from sealsum.demo.supervise import Child, Supervisor
from sealsum.evidence_verdict import verifier
from sealsum.policy_file import read_policy
from sealsum.sdk import Federation
from silo_agent.export_command import handed_over
from silo_agent.ledger.books import ledger_path
from silo_agent.models.files import model_file

BASELINES_S = 240.0


@dataclass(frozen=True)
class Finished:
    """What a run leaves to be printed."""

    folder: DemoFolder
    summary: Summary
    lines: tuple[str, ...]


def run_demo(options: DemoOptions, console: Console, began: float) -> Finished:
    """Run the whole demonstration; ``began`` is the monotonic time from which its duration counts.

    Raises:
        ConfigurationError: an option or the output folder is wrong; nothing was changed.
        PolicyRefusal: the policy does not admit this job; nothing was started.
        ChildFailed, JobFailed: a process or the job failed; every child has been ended.
    """
    with Screen(console, began) as screen:
        screen.phase("Checking the job against the policy")
        policy = read_policy(options.policy)
        terms = _terms(options, policy)
        refuse_if_policy_does(policy, terms)
        verifier()  # missing, it would be missed only at the very end
        folder = prepare_folder(options.out)
        with loopback_without_proxy(), Supervisor(folder.logs) as supervisor:
            trained = _train(options, policy, terms, folder, supervisor, screen)
            screen.phase("Exporting the evidence and verifying it")
            result = collect(trained, claim_of(trained))
            drawings = draw(result)
            export_pack(folder, trained)
            verdict = verify_pack(supervisor, folder, trained.officers)
        screen.phase("Writing the report")
        summary = _write(folder, trained, result, render_report(result, drawings, verdict), verdict, began)
    return Finished(folder, summary, _closing_lines(folder, summary))


def _terms(options: DemoOptions, policy: LoadedPolicy) -> DemoTerms:
    """An ε that was asked for is taken as it is, and refused if too large; the default keeps every cap."""
    caps = policy.model.spec.limits.epsilon
    target, round_cap = options.epsilon, None
    if target is None:
        target, round_cap = min(DEFAULT_EPSILON, caps.job), caps.round
    return demo_terms(
        options.rounds,
        target,
        options.seed,
        round_cap,
        scheme=options.scheme,
        validity=options.validity,
        algorithm=options.algorithm,
        noise=options.noise,
    )


def _train(
    options: DemoOptions,
    policy: LoadedPolicy,
    terms: DemoTerms,
    folder: DemoFolder,
    supervisor: Supervisor,
    screen: Screen,
) -> Trained:
    programs = Programs(servers=options.server_python, openfhe=options.openfhe)
    splits = tuple(split_patients(hospital, patients_of(hospital), options.seed) for hospital in HOSPITALS)
    files = hand_out_patients(folder, splits)
    baselines = _start_baselines(supervisor, folder, terms, options.seed, files)

    cast, share_servers = cast_of(options.scheme), share_servers_of(options.scheme)
    screen.phase(f"Enrolling {len(cast)} parties over HTTPS")
    registrar_port, *server_ports = free_ports(2 + len(share_servers))
    ports = dict(zip((AGGREGATOR, *share_servers), server_ports, strict=True))
    urls = {name: f"https://127.0.0.1:{port}" for name, port in ports.items()}
    founded = found_and_enrol(supervisor, folder, policy, cast, registrar_port, urls, programs)
    screen.line(f"enrolled {counted_parties(options.scheme)}; charter sealed")

    screen.phase("Starting the servers and the hospitals' agents")
    start_servers(supervisor, folder, ports, founded.charter_file, programs)
    agents = start_agents(supervisor, folder, urls[AGGREGATOR], policy.text, programs)

    screen.phase("Training the models to compare with")
    answer = _finish_baselines(supervisor, baselines, folder)

    with Federation.connect(folder.state(RESEARCHER), aggregator_url=urls[AGGREGATOR]) as federation:
        spec = terms.job(FEDERATION, founded.charter.digest)
        job = federation.submit(spec, terms.initial)
        screen.phase(f"Training across four hospitals; only sums are opened (scheme {options.scheme})")
        view, standing = follow(job, {agent.name: agent.log for agent in agents}, supervisor, screen)
        screen.line(f"{view.openings} sums opened, {len(view.refusals)} refusals")
        model = fetch_final_model(job, policy, folder, urls[AGGREGATOR])
        evidence = job.evidence()
        server_logs = {name: federation.server_log(name) for name in share_servers}
    supervisor.stop(agents)
    return Trained(
        charter=founded.charter,
        officers=founded.officers,
        policy=policy,
        terms=terms,
        spec=spec,
        seed=options.seed,
        files=files,
        view=view,
        standing=standing,
        model=model,
        evidence=evidence,
        server_logs=server_logs,
        ledgers=_ledgers(folder),
        handovers=_handovers(folder, spec.job),
        baselines=answer,
    )


def _start_baselines(
    supervisor: Supervisor,
    folder: DemoFolder,
    terms: DemoTerms,
    seed: int,
    files: Mapping[str, HospitalFiles],
) -> Child:
    """In a process of its own, while parties enrol; it is done before rounds are timed."""
    request = BaselineRequest(
        data=terms.data,
        model=terms.model,
        training=terms.training,
        dp=terms.dp,
        vector=terms.vector,
        rounds=terms.rounds,
        seed=seed,
        hospitals=dict(files),
    )
    asked, answered = folder.harness / "baselines.json", folder.harness / "baselines-answer.json"
    asked.write_text(request.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "sealsum.demo.baselines", str(asked), str(answered)]
    return supervisor.start("baselines", command)


def _finish_baselines(supervisor: Supervisor, child: Child, folder: DemoFolder) -> BaselineAnswer:
    supervisor.finish(child, BASELINES_S)
    return BaselineAnswer.model_validate_json((folder.harness / "baselines-answer.json").read_bytes())


def _ledgers(folder: DemoFolder) -> dict[str, bytes]:
    """Each hospital's ledger as it lies on its disk; whoever uses it verifies it with the hospital's key."""
    return {
        hospital.silo: read_file(ledger_path(folder.state(hospital.silo), DATASET)) for hospital in HOSPITALS
    }


def _handovers(folder: DemoFolder, job: str) -> tuple[bytes, ...]:
    """What ``sealsum silo export`` writes at each hospital: decisions, log and ledger, signed there."""
    configs = (folder.party(hospital.silo) / "silo.yaml" for hospital in HOSPITALS)
    return tuple(canonical_bytes(handed_over(config, job)) for config in configs)


def _write(
    folder: DemoFolder, trained: Trained, result: DemoResult, report: bytes, verdict: Verdict, began: float
) -> Summary:
    notes = {"job": result.job, "federation": result.federation, "policy": result.policy_digest}
    folder.model.write_bytes(model_file(trained.terms.model, trained.model, notes))
    folder.report.write_bytes(report)
    write_png(result, folder.picture)
    summary = summarise(result, verdict, folder.evidence.name, time.monotonic() - began)
    folder.summary.write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return summary


def _closing_lines(folder: DemoFolder, summary: Summary) -> tuple[str, ...]:
    timings = summary.timings
    overhead, beyond = timings.agent_overhead_ms, timings.round_beyond_slowest_agent_ms
    verdict = "verified" if summary.verified else "NOT VERIFIED"
    return (
        f"evidence: {verdict}; {summary.openings} sums opened, {summary.refusals} refusals",
        f"scheme: {summary.scheme}, by {summary.parties}; {summary.bytes_up_per_silo_round:,} bytes up per "
        "hospital and round at most",
        *([f"each update's norm proven to be at most {summary.norm_bound:g}"] if summary.norm_bound else []),
        f"an agent's own work beyond training: {overhead.median:.0f} ms a round (most {overhead.max:.0f}); "
        f"servers, network and waiting: {beyond.median:.0f} ms (most {beyond.max:.0f})",
        "",
        f"report    {folder.report}",
        f"picture   {folder.picture}",
        f"figures   {folder.summary}",
        f"model     {folder.model}",
        f"evidence  {folder.evidence}",
        f"verify    sealsum-verify {folder.evidence} --officers {summary.officers}",
        "",
        f"Took {summary.duration_s:.0f} s. {summary.note}",
    )

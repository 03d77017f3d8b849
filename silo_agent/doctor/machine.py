"""The doctor's look at this machine: disk, keys, certificate, threat model, data, GPU. Dials nobody."""

from __future__ import annotations

import importlib
import importlib.util
import stat
from datetime import datetime
from pathlib import Path
from typing import Final

from policies.health.checks import free_bytes, read_certificate
from policies.health.settings import STATE_FREE_BYTES
from policies.loader import LoadedPolicy
from privacy.keystore import Identity, load_identity
from silo_agent.data.sources import assert_readable, columns_of
from silo_agent.doctor.finding import LOCAL, Report
from silo_agent.footing import assert_private
from silo_agent.own_policy import assert_scheme_runs, load_own_policy
from silo_agent.settings import SiloSettings
from silo_agent.training.hidden import hidden_from_worker
from silo_agent.training.worker_process import look_at_confinement

_LOW: Final = 4
"""Times the least room, below which the disk is called low."""
_OVERDUE: Final = 0.8
"""Of a certificate's life: by then it should have renewed itself (``health.certificate``)."""
_NVIDIA: Final = Path("/dev/nvidia0")


def look_at_machine(
    settings: SiloSettings, report: Report, now: datetime
) -> tuple[Identity | None, LoadedPolicy | None]:
    """Everything local; identity and own threat model where they load."""
    _state_dir(settings, report)
    identity = _identity(settings, report)
    if identity is not None:
        _certificate(identity, report, now)
    policy = _policy(settings, report)
    _datasets(settings, report)
    _worker(settings, identity, report)
    _gpu(report)
    return identity, policy


def _state_dir(settings: SiloSettings, report: Report) -> None:
    where, least = str(settings.state_dir), STATE_FREE_BYTES >> 20
    expected = f"mode 0700, writable, {least} MiB free"
    if not settings.state_dir.is_dir():
        told = "enrol first: sealsum silo enroll --token-file FILE --state DIR"
        report.fault("state_dir", where, expected, "no such directory", told, LOCAL)
        return
    before = len(report.findings)
    with report.judging("state_dir", where, expected):
        assert_private(settings.state_dir)
    if len(report.findings) > before:
        return
    free = free_bytes(settings.state_dir)
    if free < _LOW * STATE_FREE_BYTES:
        told = "make room: below the least, rounds are refused"
        report.warn("state_dir", where, expected, f"{free >> 20} MiB free", told)
    else:
        report.ok("state_dir", where, expected, f"private, {free >> 20} MiB free")


def _identity(settings: SiloSettings, report: Report) -> Identity | None:
    where, expected = str(settings.state_dir), "a silo's keys, readable by nobody else"
    with report.judging("keys", where, expected):
        identity = load_identity(settings.state_dir)
        _ = identity.client_context
        if identity.pin.role != "silo":
            told = "point state_dir at the silo's own directory"
            report.fault("keys", where, expected, f"those of a {identity.pin.role}", told, LOCAL)
            return None
        places = [str(place) for _, place in identity.places if place is not None]
        got = f"{identity.pin.party} of {identity.pin.federation}"
        report.ok("keys", where, expected, f"{got}; {', '.join(places)}" if places else got)
        return identity
    return None


def _certificate(identity: Identity, report: Report, now: datetime) -> None:
    path = identity.directory / "identity.pem"
    where, expected = str(path), "in force, and renewed at two thirds of its life"
    renew = f"run: sealsum keys renew --state {identity.directory}"
    with report.judging("certificate", where, expected):
        certificate = read_certificate(path)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        said = f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; here it is {now:%Y-%m-%d %H:%M}"
        if now < begin:
            told = "set this machine's clock (NTP)"
            report.fault("certificate", where, expected, f"it has not begun: {said}", told, LOCAL)
        elif now >= end:
            report.fault("certificate", where, expected, f"it has ended: {said}", renew, LOCAL)
        elif now > begin + (end - begin) * _OVERDUE:
            how = renew if identity.pin.registrar else f"{renew} --registrar https://HOST:PORT"
            report.warn("certificate", where, expected, f"it is near its end: {said}", how)
        else:
            report.ok("certificate", where, expected, f"until {end:%Y-%m-%d %H:%M} UTC")


def _policy(settings: SiloSettings, report: Report) -> LoadedPolicy | None:
    where, expected = settings.threat_model, "a threat model whose scheme runs here"
    with report.judging("threat_model", where, expected):
        policy = load_own_policy(settings)
        assert_scheme_runs(policy, settings)
        scheme = policy.model.spec.require.secagg.scheme
        report.ok("threat_model", where, expected, f"{policy.model.metadata.name}, scheme {scheme}")
        return policy
    return None


def _datasets(settings: SiloSettings, report: Report) -> None:
    for name, dataset in settings.datasets.items():
        check, where = f"dataset:{name}", dataset.at
        expected = f"data that can be read, with a column {dataset.patient_id}"
        remedy = "correct datasets in silo.yaml, or let the user that runs the agent read them"
        with report.judging(check, where, expected, remedy):
            assert_readable(dataset)
            mode = stat.S_IMODE(dataset.file.stat().st_mode) if dataset.sql is None else 0
            header = columns_of(dataset)
            if dataset.patient_id not in header:
                told = f"name the column that tells patients apart: datasets.{name}.patient_id in silo.yaml"
                report.fault(check, where, expected, f"{len(header)} columns, not that one", told, LOCAL)
            elif mode & 0o004:
                told = f"run: chmod o-r {dataset.file}"
                report.warn(
                    check, where, expected, f"everybody on this machine may read it ({mode:04o})", told
                )
            else:
                report.ok(check, where, expected, f"{len(header)} columns")


def _worker(settings: SiloSettings, identity: Identity | None, report: Report) -> None:
    worker = settings.worker
    where, expected = "worker", "a process for training that has no network and sees no key"
    if not worker.process:
        told = "leave worker.process out of silo.yaml, unless there is a reason"
        report.warn("worker", where, expected, "none: training runs in the agent's own process", told)
        return
    with report.judging("worker", where, expected):
        hidden = () if identity is None else hidden_from_worker(settings, identity)
        why_not = look_at_confinement(worker, hidden)
        told = (
            "allow unprivileged user namespaces to the agent's user (docs/operating-a-silo.md), or write "
            "worker: {network: best_effort}"
        )
        if not why_not:
            report.ok("worker", where, expected, "neither network nor keys")
        elif worker.network == "required":
            report.fault("worker", where, expected, f"no namespaces: {why_not}", told, LOCAL)
        else:
            report.warn("worker", where, expected, f"it keeps its network: {why_not}", told)


def _gpu(report: Report, device: Path = _NVIDIA) -> None:
    where, expected = "GPU", "one that torch can use, or none"
    if not device.exists():
        report.ok("gpu", where, expected, "none; training runs on the CPU")
        return
    if importlib.util.find_spec("torch") is None:
        told = "install it as constraints.txt pins it"
        report.fault("gpu", where, expected, f"{device}, and torch is not installed", told, LOCAL)
        return
    torch = importlib.import_module("torch")  # only here: it takes seconds to load
    if torch.cuda.is_available():
        report.ok("gpu", where, expected, str(torch.cuda.get_device_name(0)))
    else:
        told = "install a torch with CUDA, and a driver that fits it; in a container pass the GPU on (CDI)"
        report.warn("gpu", where, expected, f"{device} is there, torch cannot use it: CPU", told)

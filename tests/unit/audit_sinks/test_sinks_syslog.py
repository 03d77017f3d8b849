"""Syslog over real sockets: bytes as RFC 5424 has them, and receivers that hang up, lie or are not there."""

from __future__ import annotations

import json
import re
import socket
import ssl
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from policies.audit_sinks.settings import SyslogSinkSettings
from policies.audit_sinks.syslog import SyslogSink, octet_counted, syslog_message
from tests.unit.audit_sinks.sinks_receivers import (
    ORIGIN,
    Receiver,
    entry,
    head_of,
    receiving,
    server_certificate,
    wait_for,
)

MESSAGE = re.compile(
    rb"<(\d{1,3})>1 (\S+) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32}) \[([^ \]]+) ([^\]]*)\] (.*)",
    re.DOTALL,
)
"""RFC 5424, section 6, as far as our messages need it."""


def _sink(url: str, **more: object) -> SyslogSink:
    return SyslogSink(
        SyslogSinkSettings.model_validate({"name": "siem", "type": "syslog", "url": url, **more})
    )


def test_a_message_is_as_rfc_5424_has_it() -> None:
    one = entry(7, "update_refused", silo="silo-1")
    message = syslog_message(one, "host-1", one.text("record"))
    root = head_of(8).root
    assert (
        message
        == (
            b"<108>1 2026-11-30T10:00:00.123Z host-1 sealsum - update_refused "
            b'[sealsum@32473 origin="'
            + ORIGIN.encode()
            + b'" seq="7" size="8" root="'
            + root.encode()
            + b'"] '
        )
        + one.record.line()
    )


@pytest.mark.parametrize(
    ("kind", "severity"), [("round_offered", 6), ("job_approved", 5), ("sink_failed", 3)]
)
def test_the_priority_is_log_audit_with_the_severity_of_the_kind(kind: str, severity: int) -> None:
    found = MESSAGE.fullmatch(syslog_message(entry(0, kind), "h", b"{}"))
    assert found is not None
    assert divmod(int(found[1]), 8) == (13, severity)


def test_messages_on_a_stream_are_counted_in_octets() -> None:
    assert octet_counted("ä".encode()) == b"2 \xc3\xa4"


def test_a_unix_socket_takes_one_datagram_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(20)
        sink = _sink(f"unix://{path}")
        sink.send([entry(0), entry(1)])
        sink.settle()
        found = [MESSAGE.fullmatch(receiver.recv(1 << 20)) for _ in range(2)]
        sink.close()
    assert [json.loads(one[9])["seq"] for one in found if one] == [0, 1]


def test_an_entry_too_long_for_a_datagram_goes_with_its_fields_redacted(tmp_path: Path) -> None:
    path, long = tmp_path / "log", entry(0, "round_offered", cohort="x" * 900_000)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(20)
        sink = _sink(f"unix://{path}")
        sink.send([long])
        found = MESSAGE.fullmatch(receiver.recv(1 << 20))
        sink.close()
    assert found is not None
    assert json.loads(found[9]) == json.loads(long.record.redact().line())


def test_tcp_takes_every_message_whole_and_in_order() -> None:
    with receiving() as receiver:
        sink = _sink(f"tcp://127.0.0.1:{receiver.port}")
        sink.send([entry(seq) for seq in range(50)])
        sink.settle()
        wait_for(lambda: len(receiver.messages) == 50)
        sink.close()
    found = [MESSAGE.fullmatch(message) for message in receiver.messages]
    assert [json.loads(one[9])["seq"] for one in found if one] == list(range(50))


def test_tls_verifies_the_receiver_and_takes_every_message(tmp_path: Path) -> None:
    context, ca = server_certificate(tmp_path)
    with receiving(context) as receiver:
        sink = _sink(f"tls://127.0.0.1:{receiver.port}", ca=str(ca), format="ocsf")
        sink.send([entry(0)])
        sink.send([entry(1)])
        sink.settle()
        wait_for(lambda: len(receiver.messages) == 2)
        sink.close()
    found = [MESSAGE.fullmatch(message) for message in receiver.messages]
    assert [json.loads(one[9])["metadata"]["sequence"] for one in found if one] == [0, 1]


def test_a_receiver_with_an_unknown_certificate_is_told_nothing(tmp_path: Path) -> None:
    context, _ = server_certificate(tmp_path)
    with receiving(context) as receiver:
        sink = _sink(f"tls://127.0.0.1:{receiver.port}")
        with pytest.raises(ssl.SSLCertVerificationError):
            sink.send([entry(0)])
        sink.close()
        assert receiver.messages == []


def test_a_receiver_of_another_name_is_told_nothing(tmp_path: Path) -> None:
    context, ca = server_certificate(tmp_path)
    with receiving(context) as receiver:
        sink = _sink(f"tls://localhost:{receiver.port}", ca=str(ca))
        with pytest.raises(ssl.SSLCertVerificationError):
            sink.send([entry(0)])
        sink.close()
        assert receiver.messages == []


def test_a_receiver_that_hung_up_is_found_out_before_the_next_write() -> None:
    receiver = Receiver()
    sink = _sink(f"tcp://127.0.0.1:{receiver.port}")
    sink.send([entry(0)])
    wait_for(lambda: len(receiver.messages) == 1)
    receiver.close()
    with pytest.raises(OSError, match=r"closed|reset"):
        sink.send([entry(1)])
    sink.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "udp://siem:514"},
        {"url": "tcp://"},
        {"url": "tcp://siem:70000"},
        {"url": "tcp://siem/path"},
        {"url": "tls://user@siem:1"},
        {"url": "unix://relative"},
        {"url": "tcp://siem:1", "ca": "ca.pem"},
        {"url": "tls://siem:1", "verify": False},
    ],
)
def test_a_receiver_that_cannot_be_meant_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(SyslogSinkSettings).validate_python({"name": "siem", "type": "syslog", **settings})


def test_ports_left_out_are_those_of_the_standards() -> None:
    made = [SyslogSinkSettings(name="s", type="syslog", url=url) for url in ("tls://siem", "tcp://[::1]")]
    assert [one.address for one in made] == [("siem", 6514), ("::1", 601)]

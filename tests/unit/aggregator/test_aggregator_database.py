"""Which databases a server takes, before and after it is opened; PostgreSQL's own are in tests/e2e."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.audit_log import AuditLog, Overtaken
from aggregator.database import checked_url, open_database
from aggregator.ending import REASON_LENGTH, _one_line
from aggregator.settings import ShareServerSettings, load_settings
from aggregator.store import Store
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import PartyId

SECRET = "correct-horse"
POSTGRESQL = "postgresql+psycopg://sealsum@db.hospital.example/sealsum"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("not a url", "expected a URL"),
        ("mysql://root@localhost/x", "got mysql://"),
        ("postgresql://sealsum@localhost/x", r"expected sqlite:/// or postgresql\+psycopg://"),
        ("sqlite://", "must outlive us"),
        ("sqlite:///:memory:", "must outlive us"),
        ("sqlite:///file:x?mode=memory&uri=true", "must outlive us"),
        (f"postgresql+psycopg://sealsum:{SECRET}@db.hospital.example/x", "got a password"),
        (f"{POSTGRESQL}?password={SECRET}", "got password"),
        (f"{POSTGRESQL}?sslpassword={SECRET}", "got sslpassword"),
        (f"{POSTGRESQL}?options=-csynchronous_commit%3Doff", "got options"),
        (f"{POSTGRESQL}?hostaddr=10.0.0.1&sslmode=disable", "got hostaddr"),
        (f"{POSTGRESQL}?sslmode=require", "expected verify-full"),
        ("postgresql+psycopg:///x?sslmode=disable", "expected verify-full"),
        ("postgresql+psycopg:///x?host=/run/pg,db.example&sslmode=disable", "expected verify-full"),
        ("postgresql+psycopg:///x?host=/run/pg&host=db.example&sslmode=disable", "expected verify-full"),
        ("postgresql+psycopg://db.example/x?host=/run/pg&sslmode=disable", "expected verify-full"),
    ],
)
def test_a_url_that_would_weaken_a_rule_is_refused_and_not_repeated(
    url: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=says):
        checked_url(url)
    with pytest.raises(ConfigurationError, match=says):
        open_database(url)
    config = tmp_path / "server.yaml"
    config.write_text(f"state_dir: state\nlisten: 127.0.0.1:0\ndatabase_url: '{url}'\n")
    with pytest.raises(ConfigurationError, match=says) as refused:
        load_settings(config, ShareServerSettings)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "sslmode"),
    [
        (POSTGRESQL, "verify-full"),
        (f"{POSTGRESQL}?sslmode=verify-full&sslrootcert=/etc/ca.pem&passfile=/run/pw", "verify-full"),
        ("postgresql+psycopg:///sealsum", "verify-full"),
        ("postgresql+psycopg://sealsum@/sealsum?host=/run/postgresql", "verify-full"),
        ("postgresql+psycopg://sealsum@localhost/sealsum?sslmode=disable", "disable"),
        ("postgresql+psycopg://sealsum@[::1]/sealsum?sslmode=prefer", "prefer"),
    ],
)
def test_tls_to_another_machine_is_verified_without_being_asked_for(url: str, sslmode: str) -> None:
    assert checked_url(url).query["sslmode"] == sslmode


def test_a_database_that_does_not_answer_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected a database there"):
        open_database(f"postgresql+psycopg://sealsum@/x?host={tmp_path}")
    with pytest.raises(ConfigurationError, match="expected a database there"):
        open_database(f"sqlite:///{tmp_path / 'absent' / 'server.db'}")


def test_a_second_process_on_a_sqlite_file_locks_the_first_one_out(tmp_path: Path) -> None:
    url, key = f"sqlite:///{tmp_path / 'server.db'}", SigningKey.generate()
    first, second = (Store(url, AuditLog("fed", PartyId("server-0"), key), tmp_path, ()) for _ in range(2))
    record_start(first)
    for _ in range(2):
        with pytest.raises(Overtaken, match="another one has written"):
            record_start(second)
    with second.read() as view, pytest.raises(Overtaken, match="restart this one"):
        second.log.check_ours(view.connection)
    record_start(first)
    second.close()
    # A new start reads the log again, and now the first one is the stale one.
    second = Store(url, AuditLog("fed", PartyId("server-0"), key), tmp_path, ())
    record_start(second)
    with pytest.raises(Overtaken):
        record_start(first)
    first.close()
    second.close()


def record_start(store: Store) -> None:
    with store.write() as transaction:
        transaction.record("started", party="server-0")


@given(st.text())
def test_a_reason_that_quotes_another_party_fits_any_database(reason: str) -> None:
    line = _one_line(reason)
    assert line.isprintable()
    assert len(line) <= REASON_LENGTH
    assert _one_line(line) == line or len(line) == REASON_LENGTH

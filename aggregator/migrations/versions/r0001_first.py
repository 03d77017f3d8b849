"""The tables as they were before revisions were counted (commit f6dfa11), and of no other release.

A database that such a server made is found with all or some of them, and keeps its rows.
"""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

revision: Final = "0001"
down_revision: Final = None

_tables: Final = MetaData()
Table(
    "log_entries",
    _tables,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("line", LargeBinary, nullable=False),
    Column("nodes", LargeBinary, nullable=False),
)
Table(
    "log_checkpoints",
    _tables,
    Column("name", String(96), primary_key=True),
    Column("note", Text, nullable=False),
)
Table(
    "models",
    _tables,
    Column("digest", String(64), primary_key=True),
    Column("architecture", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("published", Boolean, nullable=False),
)
Table(
    "jobs",
    _tables,
    Column("position", Integer, primary_key=True),
    Column("job", String(63), nullable=False, unique=True),
    Column("envelope", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("aborts", Integer, nullable=False),
    Column("model", String(64), nullable=False),
    CheckConstraint("state IN ('waiting', 'running', 'finished', 'failed')", name="job_state"),
)
Table(
    "charters",
    _tables,
    Column("digest", String(64), primary_key=True),
    Column("envelope", LargeBinary, nullable=False),
)
Table(
    "rounds",
    _tables,
    Column("position", Integer, primary_key=True),
    Column("ctx", String(64), nullable=False, unique=True),
    Column("job", String(63), nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("scrubbed", Boolean, nullable=False),
    UniqueConstraint("job", "round", name="a_round_number_never_repeats"),
)
Table(
    "messages",
    _tables,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("party", String(63), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "kind", "party", name="one_message_of_a_kind_per_party_and_round"),
)
Table(
    "seeds",
    _tables,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "silo", name="one_seed_per_silo_and_round"),
)
Table(
    "coins",
    _tables,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("value", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "step", name="one_value_per_toss"),
)
Table(
    "he_keys",
    _tables,
    Column("job", String(64), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("key", String(64), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "silo", name="one_key_per_silo_and_job"),
)
Table(
    "ledger_heads",
    _tables,
    Column("silo", String(63), nullable=False),
    Column("dataset", String(63), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("kind", String(32), nullable=False),
    PrimaryKeyConstraint("silo", "dataset", name="one_head_per_silo_and_dataset"),
)
Table(
    "askings",
    _tables,
    Column("job", String(64), primary_key=True),
    Column("until", BigInteger, nullable=False),
)
Table(
    "readiness",
    _tables,
    Column("job", String(64), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "silo", name="one_answer_per_silo_and_job"),
)
Table(
    "openings",
    _tables,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), primary_key=True),
    Column("survivors", String(64), nullable=False),
)
Table(
    "api_tokens",
    _tables,
    Column("id", String(12), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("scopes", Text, nullable=False),
    Column("label", String(80), nullable=False),
    Column("issued_by", String(32), nullable=False),
    Column("issued_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
)


def upgrade() -> None:
    """Create those that are not there."""
    _tables.create_all(op.get_bind())

"""Drains, legal holds, what has expired, and results of attacks on jobs' models."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, LargeBinary, PrimaryKeyConstraint, String, Text

revision: Final = "0003"
down_revision: Final = "0002"


def upgrade() -> None:
    """Add them, empty."""
    op.create_table(
        "drains",
        Column("name", String(16), primary_key=True),
        Column("what", String(16), nullable=False),
        Column("reason", Text, nullable=False),
        Column("by", String(64), nullable=False),
        Column("at", BigInteger, nullable=False),
    )
    op.create_table(
        "job_holds",
        Column("job", String(63), primary_key=True),
        Column("reason", Text, nullable=False),
        Column("by", String(64), nullable=False),
        Column("at", BigInteger, nullable=False),
    )
    op.create_table(
        "expired_jobs",
        Column("job", String(63), primary_key=True),
        Column("at", BigInteger, nullable=False),
        Column("files_left", Text, nullable=False),
    )
    op.create_table(
        "attack_results",
        Column("job", String(64), nullable=False),
        Column("party", String(63), nullable=False),
        Column("envelope", LargeBinary, nullable=False),
        PrimaryKeyConstraint("job", "party", name="one_attack_result_per_job_and_party"),
    )

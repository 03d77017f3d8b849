"""How often each silo was invited to a job's rounds, and what came of it."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, String

revision: Final = "0004"
down_revision: Final = "0003"


def upgrade() -> None:
    """Add it; rounds of before are in no count."""
    op.create_table(
        "turnouts",
        Column("job", String(63), nullable=False),
        Column("silo", String(63), nullable=False),
        Column("invited", Integer, nullable=False),
        Column("summed", Integer, nullable=False),
        Column("refused", Integer, nullable=False),
        Column("failed", Integer, nullable=False),
        Column("left_out", Integer, nullable=False),
        Column("left_out_in_row", Integer, nullable=False),
        Column("strikes", Integer, nullable=False),
        Column("paused_until", BigInteger, nullable=False),
        PrimaryKeyConstraint("job", "silo", name="one_turnout_per_job_and_silo"),
    )

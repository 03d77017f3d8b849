"""What an aggregator needs to go on with a round after a restart, and to hand it to another process."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, PrimaryKeyConstraint, String

revision: Final = "0002"
down_revision: Final = "0001"


def upgrade() -> None:
    """Add them; a round of before has no beginning, and its deadline counts from the restart."""
    op.add_column("rounds", Column("began_at", BigInteger, nullable=True))
    op.create_table(
        "desk_answers",
        Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
        Column("step", String(16), nullable=False),
        Column("silo", String(63), nullable=False),
        Column("envelopes", LargeBinary, nullable=False),
        PrimaryKeyConstraint("ctx", "step", "silo", name="one_answer_per_step_and_silo"),
    )
    op.create_table(
        "desk_steps",
        Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
        Column("step", String(16), nullable=False),
        Column("closed_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("ctx", "step", name="a_step_closes_once"),
    )
    op.create_table(
        "leases",
        Column("name", String(32), primary_key=True),
        Column("token", BigInteger, nullable=False),
        Column("holder", String(32), nullable=False),
        Column("address", String(255), nullable=False),
        Column("expires_at", BigInteger, nullable=False),
    )

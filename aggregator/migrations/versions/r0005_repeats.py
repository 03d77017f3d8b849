"""What calls with an ``Idempotency-Key`` were answered, so that a repeated one is answered the same."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, LargeBinary, String

revision: Final = "0005"
down_revision: Final = "0004"


def upgrade() -> None:
    """Add it, empty."""
    op.create_table(
        "repeats",
        Column("key", String(64), primary_key=True),
        Column("call", String(64), nullable=False),
        Column("answer", LargeBinary, nullable=False),
        Column("at", BigInteger, nullable=False),
    )

"""The SQL that every round needs, built once: SQLAlchemy takes longer to build a statement than to run it.

Values are bound where a statement is executed. Names of parameters are the columns', except where a column is
both sought and set.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from aggregator.tables import (
    desk_answers,
    desk_steps,
    ledger_heads,
    log_entries,
    messages,
    openings,
    rounds,
    seeds,
    turnouts,
)

PHASE: Final = select(rounds.c.phase).where(rounds.c.ctx == bindparam("ctx"))
MESSAGE: Final = select(messages.c.envelope).where(
    messages.c.ctx == bindparam("ctx"),
    messages.c.kind == bindparam("kind"),
    messages.c.party == bindparam("party"),
)
MESSAGES: Final = (
    select(messages.c.party, messages.c.envelope)
    .where(messages.c.ctx == bindparam("ctx"), messages.c.kind == bindparam("kind"))
    .order_by(messages.c.party)
)
JOB_MESSAGES: Final = (
    select(rounds.c.ctx, messages.c.party, messages.c.envelope)
    .join_from(messages, rounds, messages.c.ctx == rounds.c.ctx)
    .where(
        rounds.c.job == bindparam("job"),
        rounds.c.round > bindparam("after"),
        messages.c.kind == bindparam("kind"),
    )
    .order_by(rounds.c.round, messages.c.party)
)
JOB_ROUNDS: Final = (
    select(rounds)
    .where(rounds.c.job == bindparam("job"), rounds.c.round > bindparam("after"))
    .order_by(rounds.c.round)
)
LAST_ROUND: Final = select(func.max(rounds.c.round)).where(rounds.c.job == bindparam("job"))
OPENING: Final = select(openings.c.survivors).where(openings.c.ctx == bindparam("ctx"))
SEEDS: Final = (
    select(seeds.c.silo, seeds.c.sealed).where(seeds.c.ctx == bindparam("ctx")).order_by(seeds.c.silo)
)
LEDGER_HEAD: Final = select(ledger_heads.c.seq, ledger_heads.c.hash).where(
    ledger_heads.c.silo == bindparam("silo"), ledger_heads.c.dataset == bindparam("dataset")
)
ADD_LEDGER_HEAD: Final = insert(ledger_heads)
MOVE_LEDGER_HEAD: Final = update(ledger_heads).where(
    ledger_heads.c.silo == bindparam("of_silo"), ledger_heads.c.dataset == bindparam("of_dataset")
)
"""Sets the columns that it is executed with."""
LAST_LOG_NODES: Final = (
    select(log_entries.c.seq, log_entries.c.nodes).order_by(log_entries.c.seq.desc()).limit(1)
)
LOG_NODES: Final = select(log_entries.c.nodes).where(log_entries.c.seq == bindparam("seq"))
DESK_ANSWERS: Final = (
    select(desk_answers.c.step, desk_answers.c.silo, desk_answers.c.envelopes)
    .where(desk_answers.c.ctx == bindparam("ctx"))
    .order_by(desk_answers.c.silo)
)
DESK_STEPS: Final = select(desk_steps.c.step, desk_steps.c.closed_at).where(
    desk_steps.c.ctx == bindparam("ctx")
)
ADD_DESK_ANSWER: Final = insert(desk_answers)
CLOSE_DESK_STEP: Final = insert(desk_steps)
FORGET_DESK_ANSWERS: Final = delete(desk_answers).where(desk_answers.c.ctx == bindparam("ctx"))
FORGET_DESK_STEPS: Final = delete(desk_steps).where(desk_steps.c.ctx == bindparam("ctx"))
ADD_LOG_ENTRY: Final = insert(log_entries)
ADD_MESSAGE: Final = insert(messages)
ADD_OPENING: Final = insert(openings)
ADD_ROUND: Final = insert(rounds)
ADD_SEED: Final = insert(seeds)
ADD_TURNOUT: Final = insert(turnouts)
SET_TURNOUT: Final = update(turnouts).where(
    turnouts.c.job == bindparam("of_job"), turnouts.c.silo == bindparam("of_silo")
)
"""Sets the columns that it is executed with, besides ``of_job`` and ``of_silo``."""
SET_PHASE: Final = update(rounds).where(rounds.c.ctx == bindparam("of"))
"""Sets the columns that it is executed with, besides ``of``."""

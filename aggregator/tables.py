"""The tables of a server's database; constraints say what may happen once.

The aggregator and a share server each have a database of their own with the same shape, because both
keep a log, rounds and the signed messages of each. Messages are kept as the bytes that were signed.
"""

from __future__ import annotations

from typing import Final

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

metadata: Final = MetaData()

log_entries: Final = Table(
    "log_entries",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("line", LargeBinary, nullable=False),
    Column("nodes", LargeBinary, nullable=False),
)
"""The log: one record a row, never deleted. Fields of an expired job's entries give way to their commitments,
over which the tree was built; nothing else ever changes (``retention``). ``nodes`` are the hashes of the
subtrees that this entry completes, smallest first, 32 bytes each (``privacy.transparency.merkle``)."""

log_checkpoints: Final = Table(
    "log_checkpoints",
    metadata,
    Column("name", String(96), primary_key=True),
    Column("note", Text, nullable=False),
)
"""``ours``: the newest checkpoint that this server signed and kept. ``witnessed``: the newest one that enough
silos have cosigned, with their signatures. ``silo <name>``: the newest one of that silo's own log."""

models: Final = Table(
    "models",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("architecture", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("published", Boolean, nullable=False),
)
"""``published``: it came out of a round, so the threat model says who may read it."""

jobs: Final = Table(
    "jobs",
    metadata,
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
"""``aborts`` counts rounds aborted in a row; ``model`` is the latest published one."""

charters: Final = Table(
    "charters",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("envelope", LargeBinary, nullable=False),
)
"""Each charter under which this server has run: a job's evidence rests on the one it was accepted under."""

rounds: Final = Table(
    "rounds",
    metadata,
    Column("position", Integer, primary_key=True),
    Column("ctx", String(64), nullable=False, unique=True),
    Column("job", String(63), nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("scrubbed", Boolean, nullable=False),
    Column("began_at", BigInteger, nullable=True),
    UniqueConstraint("job", "round", name="a_round_number_never_repeats"),
)
"""``scrubbed``: every share server has confirmed that it deleted its shares. ``began_at``: Unix milliseconds,
so that a restart knows what is left of a deadline; of rounds of earlier releases it is unknown."""

messages: Final = Table(
    "messages",
    metadata,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("party", String(63), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "kind", "party", name="one_message_of_a_kind_per_party_and_round"),
)

seeds: Final = Table(
    "seeds",
    metadata,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "silo", name="one_seed_per_silo_and_round"),
)
"""Still sealed to this server's key. The first share server has rows here in rounds with validity only."""

coins: Final = Table(
    "coins",
    metadata,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("value", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "step", name="one_value_per_toss"),
)
"""What a share server drew for a toss, before it committed to it: a restart never draws again."""

he_keys: Final = Table(
    "he_keys",
    metadata,
    Column("job", String(64), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("key", String(64), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "silo", name="one_key_per_silo_and_job"),
)
"""The key of a job under ``bfv`` or ``ckks``, sealed by one silo to each; ``job`` and ``key`` are digests.
This server cannot open it, and deletes it with the job's end."""

ledger_heads: Final = Table(
    "ledger_heads",
    metadata,
    Column("silo", String(63), nullable=False),
    Column("dataset", String(63), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("kind", String(32), nullable=False),
    PrimaryKeyConstraint("silo", "dataset", name="one_head_per_silo_and_dataset"),
)
"""The furthest head of a silo's ledger that this server was shown, and the manifest that the silo signed it
in. It only moves forward; nothing deletes it."""

askings: Final = Table(
    "askings",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("until", BigInteger, nullable=False),
)
"""Until when silos may answer whether they take part; ``job`` is a digest, ``until`` Unix seconds."""

readiness: Final = Table(
    "readiness",
    metadata,
    Column("job", String(64), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "silo", name="one_answer_per_silo_and_job"),
)
"""The latest answer of each silo, as it signed it; ``job`` is a digest."""

desk_answers: Final = Table(
    "desk_answers",
    metadata,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("step", String(16), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("envelopes", LargeBinary, nullable=False),
    PrimaryKeyConstraint("ctx", "step", "silo", name="one_answer_per_step_and_silo"),
)
"""What the aggregator believed of a silo in a step of an open round, as it came: a JSON list of envelopes.
Steps whose messages could open something are never here; all of a round's go with its end."""

desk_steps: Final = Table(
    "desk_steps",
    metadata,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), nullable=False),
    Column("step", String(16), nullable=False),
    Column("closed_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("ctx", "step", name="a_step_closes_once"),
)
"""Steps of open rounds that take nobody's answer any more. ``closed_at``: Unix milliseconds."""

turnouts: Final = Table(
    "turnouts",
    metadata,
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
"""How often a silo was invited to a job's rounds and what came of it (``aggregator.turnout``)."""

leases: Final = Table(
    "leases",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("holder", String(32), nullable=False),
    Column("address", String(255), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)
"""Which of several processes drives the rounds, until when by the database's clock (Unix milliseconds), and
where it listens. ``token`` grows by one with each new holder: whoever has an older one writes nothing."""

openings: Final = Table(
    "openings",
    metadata,
    Column("ctx", String(64), ForeignKey("rounds.ctx"), primary_key=True),
    Column("survivors", String(64), nullable=False),
)
"""At most one per context: at the aggregator an opening of the sum, at a share server a released share."""

api_tokens: Final = Table(
    "api_tokens",
    metadata,
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
"""API tokens by the SHA-256 of their secrets. Unix seconds, 0 for never; rows stay when tokens have ended."""

repeats: Final = Table(
    "repeats",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("call", String(64), nullable=False),
    Column("answer", LargeBinary, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""Sealed answers to calls with an ``Idempotency-Key`` (``aggregator/operators/repeats.py``)."""

drains: Final = Table(
    "drains",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("what", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("by", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""At most one row: that nothing new begins, which outlives a restart. ``by`` is a pseudonym, ``at`` Unix
seconds; so in the next two."""

job_holds: Final = Table(
    "job_holds",
    metadata,
    Column("job", String(63), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("by", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""Legal holds."""

expired_jobs: Final = Table(
    "expired_jobs",
    metadata,
    Column("job", String(63), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("files_left", Text, nullable=False),
)
"""Jobs whose rows are deleted. ``files_left``: models whose files are still to go, a JSON list of digests."""

attack_results: Final = Table(
    "attack_results",
    metadata,
    Column("job", String(64), nullable=False),
    Column("party", String(63), nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "party", name="one_attack_result_per_job_and_party"),
)
"""What attacks on a job's terms came to, as a member signed it; ``job`` is a digest. A later one replaces."""

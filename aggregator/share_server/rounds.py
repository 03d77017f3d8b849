"""A share server's rows: rounds, frozen sets, sealed seeds; they survive a restart between any two calls."""

from __future__ import annotations

from sqlalchemy import delete, select

from aggregator.received import open_offer
from aggregator.statements import ADD_SEED, LAST_ROUND, SEEDS
from aggregator.store import Reader, Store, Writer
from aggregator.succession import Succession
from aggregator.tables import rounds, seeds
from policies.gates import AdmittedPlan, admit_plan
from privacy.errors import NotFound
from privacy.ids import Context, JobId, PartyId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import RING_BYTES
from privacy.secagg.validity.cut import upload_bytes
from privacy.secagg.validity.field import FIELD_BYTES
from privacy.secagg.validity.server import CheckShare
from privacy.secagg.validity.terms import terms_of
from privacy.secagg.vectors import vectors_of
from privacy.wire.messages import RoundOffer


class AdmittedRounds:
    """Rounds that passed this server's own plan gate; after a restart the gate is asked again."""

    def __init__(self, store: Store, charters: Succession) -> None:
        self._store = store
        self._charters = charters
        self._admitted: dict[Context, AdmittedPlan] = {}

    def of(self, ctx: Context) -> AdmittedPlan:
        """The evidence of an admitted round.

        Raises:
            NotFound: this server has admitted no such round.
        """
        if ctx not in self._admitted:
            with self._store.read() as view:
                offers = view.messages(ctx, "offer")
            if not offers:
                raise NotFound(f"round {ctx[:16]}…: it has not been offered to this server")
            charter = self._charters.charter
            offer, job = open_offer(charter, next(iter(offers.values())))
            self._admitted[ctx] = admit_plan([self._charters.policy], offer, job, charter)
        return self._admitted[ctx]

    def keep(self, admitted: AdmittedPlan) -> None:
        """Remember evidence that was minted just now."""
        self._admitted[admitted.plan.context] = admitted

    def judge_again(self) -> None:
        """Another charter is in force: a round of the one before it passes no gate any more."""
        self._admitted.clear()

    def forget(self, ctx: Context) -> None:
        """The round is over."""
        self._admitted.pop(ctx, None)


def bytes_needed(plan: RoundPlan) -> int:
    """Disk that one round may take: all silos' vectors and one opening; with validity also all checks."""
    if plan.validity is None:
        return RING_BYTES * sum(vectors_of(plan).lengths.values()) * (len(plan.cohort) + 1)
    terms = terms_of(plan)
    checks = CheckShare.size(terms) * len(plan.servers)
    return (upload_bytes(terms) + checks) * len(plan.cohort) + FIELD_BYTES * plan.vector_length


def bytes_held(view: Reader) -> int:
    """Disk that the unfinished rounds may take together."""
    offers = [offer for ctx in unfinished(view) for offer in view.messages(ctx, "offer").values()]
    # Each was verified before it was stored; under a later charter it may no longer open.
    return sum(bytes_needed(RoundOffer.model_validate_json(offer.body).plan) for offer in offers)


def last_round(view: Reader, job: JobId) -> int:
    """The highest round number of a job that was admitted here, 0 if none."""
    return view.connection.execute(LAST_ROUND, {"job": job}).scalar_one() or 0


def unfinished(view: Reader) -> list[Context]:
    """Rounds whose shares are still held."""
    query = select(rounds.c.ctx).where(rounds.c.phase != "finished")
    return [Context(row.ctx) for row in view.connection.execute(query)]


def add_seed(transaction: Writer, ctx: Context, silo: SiloId, sealed: bytes) -> None:
    """Keep a seed, sealed as it came."""
    transaction.connection.execute(ADD_SEED, {"ctx": ctx, "silo": silo, "sealed": sealed})


def seeds_of(view: Reader, ctx: Context) -> dict[SiloId, bytes]:
    """The sealed seeds of a round, by silo."""
    found = view.connection.execute(SEEDS, {"ctx": ctx})
    return {SiloId(PartyId(row.silo)): row.sealed for row in found}


def scrub_seeds(transaction: Writer, ctx: Context) -> None:
    """Delete a round's seeds; SQLite overwrites them (``secure_delete``).

    PostgreSQL keeps deleted rows until it vacuums, and in its write-ahead log. Those bytes are still sealed
    to this server's key, which is in no database (ADR 0013).
    """
    transaction.connection.execute(delete(seeds).where(seeds.c.ctx == ctx))

"""Which row knows which blob, at an aggregator and at a share server."""

from __future__ import annotations

from sqlalchemy import select

from aggregator.job_rows import model_row, open_job_digests
from aggregator.orphans import Collector, Watched
from aggregator.settings import ServerSettings
from aggregator.share_server.rounds import unfinished
from aggregator.store import Reader, Store
from aggregator.stores import Kind, Stores
from aggregator.tables import models, rounds
from privacy.ids import Digest


def aggregator_collector(settings: ServerSettings, store: Store, stores: Stores) -> Collector:
    """Models that were never registered, and what silos sent in rounds that the database does not know."""
    kinds = stores.opened
    watched: dict[Kind, Watched] = {
        "parts": Watched(kinds["parts"], _round_to_scrub),
        "sums": Watched(kinds["sums"], _round_to_scrub),
        "models": Watched(kinds["models"], _is_model, _models),
        "optimizers": Watched(kinds["optimizers"], _is_open_job),
    }
    return Collector(store, watched, settings.collect_after_s, settings.collect_every_s)


def share_server_collector(settings: ServerSettings, store: Store, stores: Stores) -> Collector:
    """Shares of rounds that are over, or that the database does not know."""
    kinds = stores.opened
    watched: dict[Kind, Watched] = {
        "parts": Watched(kinds["parts"], _is_unfinished),
        "opening": Watched(kinds["opening"], _is_unfinished),
    }
    return Collector(store, watched, settings.collect_after_s, settings.collect_every_s)


def _is_model(view: Reader, name: str) -> bool:
    return model_row(view, Digest(name)) is not None


def _models(view: Reader) -> set[str]:
    return set(view.connection.execute(select(models.c.digest)).scalars())


def _round_to_scrub(view: Reader, name: str) -> bool:
    """Whether it is open, or its scrubbing is still to come (``RunLoop``)."""
    query = select(rounds.c.scrubbed).where(rounds.c.ctx == name)
    return view.connection.execute(query).scalar_one_or_none() is False


def _is_open_job(view: Reader, name: str) -> bool:
    return name in open_job_digests(view)


def _is_unfinished(view: Reader, name: str) -> bool:
    return name in unfinished(view)

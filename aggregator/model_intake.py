"""Models at the aggregator: taken whole under their digests, shown to whoever may have them. No HTTP here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from aggregator.attack_results import attacked
from aggregator.blob_store import Blob
from aggregator.job_rows import add_model, is_final_model, model_bytes_held, model_row
from aggregator.not_now import NotNow
from aggregator.state import AggregatorState
from policies.gates import check_reader
from policies.institutions import Reader
from privacy.errors import NotFound, TooLarge, Unprocessable
from privacy.ids import Digest
from privacy.update import FLOAT_BYTES, digest_under


class Models:
    """Those of one aggregator."""

    def __init__(self, state: AggregatorState, model_bytes_max: int, storage_bytes_max: int) -> None:
        self._state = state
        self._model_bytes_max = model_bytes_max
        self._storage_bytes_max = storage_bytes_max

    @property
    def bytes_max(self) -> int:
        """Largest model that is taken."""
        return self._model_bytes_max

    async def put(self, digest: Digest, architecture: Digest, body: AsyncIterator[bytes]) -> bool:
        """Store a model as raw float32; True if it is new.

        Raises:
            TooLarge: over a limit. Unprocessable: other bytes than its digest says, or not float32.
        """
        with self._state.store.read() as view:
            room = self._storage_bytes_max - model_bytes_held(view)
        limit = min(self._model_bytes_max, room)
        if limit <= 0:
            raise TooLarge(f"storage: expected at most {self._storage_bytes_max} bytes of models; it is full")
        under = partial(digest_under, architecture)
        new = await self._state.models.receive(body, digest, under, digest, limit=limit, exact=False)
        self._add_row(digest, architecture)
        return new

    def _add_row(self, digest: Digest, architecture: Digest) -> None:
        """Give a model that is here its row. Looking and writing are one step on the event loop, as are the
        collector's, so a row's blob is never taken for an orphan."""
        if not self._state.models.exists(digest):
            raise NotNow(f"model {digest[:16]}…: it was collected while it came; send it again")
        size = self._state.models.size(digest)
        if size % FLOAT_BYTES:
            # It has no row, so no limit would ever count it.
            self._state.models.scrub(digest)
            raise Unprocessable(f"model: expected a multiple of {FLOAT_BYTES} bytes, got {size}")
        with self._state.store.write() as transaction:
            add_model(transaction, digest, architecture, size, published=False)

    def blob(self, reader: Reader, digest: Digest) -> tuple[Blob, int]:
        """A model that this reader may have, and its bytes.

        A job's intermediate models stay with the silos where the threat model releases at the job's end.

        Raises:
            NotFound: there is none. PolicyRefusal: not for this reader, or not yet.
        """
        held = self._state.held
        with self._state.store.read() as view:
            row = model_row(view, digest)
            if row is None:
                raise NotFound(f"model {digest[:16]}…: there is none here")
            if row.published:
                ended = is_final_model(view, digest)
                tried = attacked(self._state, view, digest) if reader.role == "researcher" else ()
                check_reader(held.policy, held.charter, reader, job_ended=ended, attacked=tried)
        return Blob(self._state.models, (digest,)), int(row.size)

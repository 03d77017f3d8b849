"""Deleting what a crash left of ended rounds at a share server, before it takes anything new."""

from __future__ import annotations

from aggregator.share_server.rounds import unfinished
from aggregator.share_server.state import ShareServerState


def sweep(state: ShareServerState) -> None:
    """After a crash between the end of a round and its scrubbing: scrub what is left of it."""
    with state.store.read() as view:
        held = set(unfinished(view))
    for blobs in (state.parts, state.openings):
        for name in blobs.names():
            if name not in held:
                blobs.scrub(name)

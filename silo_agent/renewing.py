"""Carrying a certificate's renewal to the registrar, through the same proxy as everything else."""

from __future__ import annotations

from policies.health.certificate import Post
from privacy.keystore import Identity
from privacy.renewal import MAX_RENEWED_BYTES, RENEW_PATH, SignedRenewal
from silo_agent.egress import Egress
from silo_agent.transport import FederationClient

_PATIENCE_S = 20.0


def post_to(identity: Identity, registrar: str, egress: Egress) -> Post | None:
    """How to reach the registrar; ``None`` where none is known."""
    if not registrar:
        return None

    def post(asked: SignedRenewal) -> bytes:
        with FederationClient(identity, registrar, proxy=egress, patience_s=_PATIENCE_S) as client:
            return client.post_json(RENEW_PATH, asked.model_dump(mode="json"), limit=MAX_RENEWED_BYTES)

    return post

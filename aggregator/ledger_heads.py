"""The furthest head of each silo's ledgers that this server was shown, kept as the silo itself signed it.

A silo whose disk went back to an older copy shows an older head at its next submission, and is refused there;
asked by the silo, this server gives back the silo's own manifest, so it can hide a head and never invent one.
"""

from __future__ import annotations

from sqlalchemy import select

from aggregator.statements import ADD_LEDGER_HEAD, LEDGER_HEAD, MOVE_LEDGER_HEAD
from aggregator.store import Reader, Writer, stored_envelope
from aggregator.tables import ledger_heads, messages
from policies.gates import AdmittedPlan
from policies.rules_submission import Manifest
from privacy.chain import EMPTY, Head
from privacy.ids import SiloId
from privacy.wire.envelope import Verified
from privacy.wire.ledger_heads import WitnessedHead, WitnessedHeads


def witnessed_head(view: Reader, admitted: AdmittedPlan, silo: SiloId) -> Head:
    """The furthest head of the silo's ledger of the job's dataset; the empty chain's where none was shown."""
    asked = {"silo": silo, "dataset": admitted.job.dataset}
    row = view.connection.execute(LEDGER_HEAD, asked).one_or_none()
    return EMPTY if row is None else Head(seq=row.seq, hash=row.hash)


def witness(transaction: Writer, admitted: AdmittedPlan, manifest: Verified[Manifest]) -> None:
    """Keep the head that an admitted manifest shows, if it is further than the one kept: none goes back."""
    silo, head = manifest.message.silo, manifest.message.ledger_head
    known = witnessed_head(transaction, admitted, silo)
    if head.seq <= known.seq:
        return
    place = {"seq": head.seq, "hash": head.hash, "ctx": manifest.context, "kind": manifest.envelope.kind}
    of = {"silo": silo, "dataset": admitted.job.dataset}
    if known == EMPTY:
        transaction.connection.execute(ADD_LEDGER_HEAD, {**of, **place})
    else:
        asked = {f"of_{name}": value for name, value in of.items()}
        transaction.connection.execute(MOVE_LEDGER_HEAD, {**asked, **place})


def heads_of(view: Reader, silo: SiloId) -> WitnessedHeads:
    """The silo's own manifests with its furthest heads, each with the offer that names the dataset."""
    offers = messages.alias()
    query = (
        select(messages.c.envelope, offers.c.envelope.label("offer"))
        .select_from(ledger_heads)
        .join(
            messages,
            (messages.c.ctx == ledger_heads.c.ctx)
            & (messages.c.kind == ledger_heads.c.kind)
            & (messages.c.party == ledger_heads.c.silo),
        )
        .join(offers, (offers.c.ctx == ledger_heads.c.ctx) & (offers.c.kind == "offer"))
        .where(ledger_heads.c.silo == silo)
        .order_by(ledger_heads.c.dataset)
    )
    found = view.connection.execute(query)
    return WitnessedHeads(
        heads=tuple(
            WitnessedHead(offer=stored_envelope(row.offer), manifest=stored_envelope(row.envelope))
            for row in found
        )
    )

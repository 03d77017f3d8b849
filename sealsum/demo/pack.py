"""The run's evidence: the claim from the hospitals' ledgers, the pack, and the verifier's own verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from privacy.chain import parse_entry, verify_entries
from privacy.ids import PartyId, ServerId, SiloId
from privacy.keystore import load_identity
from sealsum.demo.cast import RESEARCHER
from sealsum.demo.closing import Trained
from sealsum.demo.folder import DemoFolder
from sealsum.demo.job import DATASET
from sealsum.demo.results import Verdict
from sealsum.demo.supervise import Supervisor
from sealsum.evidence import build_pack
from sealsum.evidence_claim import dp_claim
from sealsum.evidence_verdict import verifier

VERIFY_S = 120.0
REJECTED = 5


def claim_of(trained: Trained) -> dict[str, Any]:
    """``dp/claim.json``, computed from the ledgers once each has been verified with its owner's key.

    Raises:
        LedgerDamaged: one does not verify.
    """
    entries = {}
    for silo, raw in trained.ledgers.items():
        origin = f"{trained.spec.federation}/ledger/{silo}/{DATASET}"
        key = trained.charter.member(PartyId(silo)).verify_key
        entries[SiloId(PartyId(silo))] = tuple(
            verify_entries((parse_entry(line) for line in raw.splitlines()), origin, key)
        )
    return dp_claim(trained.spec, entries)


def export_pack(folder: DemoFolder, trained: Trained) -> None:
    """Write ``evidence.zip``, signed by the researcher."""
    pack = build_pack(
        trained.evidence,
        {ServerId(PartyId(name)): log for name, log in trained.server_logs.items()},
        {},  # with the handovers
        load_identity(folder.state(RESEARCHER)),
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        handovers=trained.handovers,
    )
    folder.evidence.write_bytes(pack)


def verify_pack(supervisor: Supervisor, folder: DemoFolder, officers: str) -> Verdict:
    """Run ``sealsum-verify`` on the pack, as an auditor would, with the officers pinned.

    Raises:
        ConfigurationError: the verifier is not installed. ChildFailed: it could not judge the pack.
    """
    said = folder.harness / "verdict.txt"
    command = [verifier(), str(folder.evidence), "--officers", officers]
    child = supervisor.start("verify", command, stdout=said)
    code = supervisor.finish(child, VERIFY_S, accept=(0, REJECTED))
    return Verdict(code, tuple(said.read_text(encoding="utf-8").splitlines()))

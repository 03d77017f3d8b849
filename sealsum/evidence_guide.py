"""The text that tells an auditor how to check a pack without trusting who made it."""

from __future__ import annotations

_GUIDE = """# How to check this pack without trusting who made it

1. Get `sealsum-verify` from a source that you trust, not from whoever sent you this pack. It needs Python
   and `cryptography` only, runs offline and imports nothing of the platform whose evidence it judges.
2. Ask the federation `{federation}`, by a way of your own, for the digest of its officers, and compare. The
   pack says:

       {officers}

3. Run it with the digest you were told (also of earlier officers: the pack shows who followed them):

       sealsum-verify evidence.zip --officers DIGEST

   It prints fifteen checks and ends with exit code 0 (verified) or 5 (not; it names the entry).

What a verified pack shows: who took part, under which policy and on which job; that each round opened at
most one sum, of at least as many silos as the plan demands; that each model follows from the last; and that
the claimed ε is what the silos' own ledgers cost. Believe the program's numbers, not `report.html`.

Who vouches for a sum differs by scheme (`scheme` in `job/job.json`):

- `additive`: every share server accepted the same manifests, signed the same silos, and its share of the sum.
  With a norm bound (`validity`): besides, a coin that all servers tossed, each silo's proof for it, and every
  server's verdict on it; only silos that all servers passed are in the sum.
- `pairwise`: at least t silos signed the very set that was summed, under the keys of that round; t is what
  the threat model in `policy/policy.yaml` demands, or more.
- `bfv`, `ckks`: all updates are under one key, the aggregator signed one sum of exactly the survivors'
  ciphertexts, and the silos signed what it decrypts to, all the same.
- `threshold_bfv`, `threshold_ckks`: every silo with a part of the round's key is in the sum, all came to
  the same key, the aggregator signed one sum of exactly their ciphertexts, and all of them helped to open it.

`tests/attack.json`, if it is there, says what attacks on the exporter's own installation came to. The pack's
signer vouches for it, and nothing else does: run `sealsum audit attack` yourself.

What it cannot show: that a silo trained on the data it names, that a silo's agent added the noise its
ledger records, or what a party did outside the protocol. The tail of a log or ledger behind the last entry
that somebody else has witnessed could have been cut off by its owner. Nothing that could open an update is in
here, so masks, ciphertexts and proofs are not opened again: their digests are, and who signed them.
"""


def guide(federation: str, officers: str) -> str:
    """``VERIFY.md`` of a federation's packs."""
    return _GUIDE.format(federation=federation, officers=officers)

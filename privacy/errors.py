"""The exception tree, and the exit code each branch ends a command with.

    SealsumError                    1   our side failed: disk, a bug, a missing file
    ├── ConfigurationError         78   a file or flag that we were given is wrong
    ├── PeerFault                   2   another party sent something it must not send
    │   ├── MalformedMessage            not decodable, too large, or not canonical   (HTTP 400)
    │   ├── SignatureRejected           unknown signer, or bytes nobody signed       (HTTP 401)
    │   ├── NotAllowed                  a known party asking for what is not its own (HTTP 403)
    │   ├── NotFound                    no such round, job or model                  (HTTP 404)
    │   ├── OutOfOrder                  right message, wrong phase or round          (HTTP 409)
    │   ├── Conflict                    same name, other bytes                       (HTTP 409)
    │   │   └── SecondInstance          two agents speak for one silo                (HTTP 409)
    │   ├── TooLarge                    over a stated limit                          (HTTP 413)
    │   ├── Unprocessable               well formed, and against the terms           (HTTP 422)
    │   └── ProofRejected               a log's proof that shows nothing             (HTTP 422)
    ├── PolicyRefusal               3   a threat model says no; carries findings
    ├── BudgetExhausted             4   a reservation would pass a cap
    └── LedgerDamaged               5   a ledger or log does not verify

Messages name the field, what was expected, what came and what to do. They never carry keys,
seeds, vectors, example counts, or anything computed from them.
"""

from __future__ import annotations


class SealsumError(Exception):
    """Anything Sealsum raises on purpose."""

    exit_code = 1


class ConfigurationError(SealsumError):
    """What we were given to run with is wrong; nothing was changed."""

    exit_code = 78


class PeerFault(SealsumError):
    """Another party broke the protocol; its message has had no effect."""

    exit_code = 2
    status = 400
    kind = "peer-fault"


class MalformedMessage(PeerFault):
    status, kind = 400, "malformed-message"


class SignatureRejected(PeerFault):
    status, kind = 401, "signature-rejected"


class NotAllowed(PeerFault):
    status, kind = 403, "not-allowed"


class NotFound(PeerFault):
    status, kind = 404, "not-found"


class OutOfOrder(PeerFault):
    status, kind = 409, "out-of-order"


class Conflict(PeerFault):
    status, kind = 409, "conflict"


class SecondInstance(Conflict):
    kind = "second-instance"


class TooLarge(PeerFault):
    status, kind = 413, "too-large"


class Unprocessable(PeerFault):
    status, kind = 422, "unprocessable"


class ProofRejected(PeerFault):
    status, kind = 422, "proof-rejected"


class BudgetExhausted(SealsumError):
    """The privacy budget does not allow this; no data were touched."""

    exit_code = 4


class LedgerDamaged(SealsumError):
    """A ledger or log is broken, forged or shorter than it was; nothing continues from it."""

    exit_code = 5

"""A silo's half of ``threshold_bfv`` and ``threshold_ckks``: a key share, an update, a partial decryption.

docs/protocols.md, threshold_bfv and threshold_ckks. The key is made once the update is: from then on the
round needs every silo. What is signed in a step, and that it is signed once, is for
``privacy/secagg/threshold`` to judge; here it is stored, sent and waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from policies.assumption import colluding_silos
from policies.findings import PolicyRefusal
from privacy.chain import Head
from privacy.errors import ConfigurationError, OutOfOrder, PeerFault, SealsumError
from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.faults import Equivocation, StateDamaged
from privacy.secagg.threshold.faults import WorkerFailed
from privacy.secagg.threshold.messages import PartialDecryption
from privacy.secagg.threshold.parts import threshold_stretches
from privacy.secagg.threshold.silo_encrypting import Encrypter, admit_cohort, sign_manifest
from privacy.secagg.threshold.silo_keys import begin, join, reveal
from privacy.secagg.threshold.silo_opening import PartialOpener, sign_partial
from privacy.secagg.threshold.silo_state import SiloState, Step
from privacy.secagg.threshold.terms import ThresholdTerms, judge_terms, terms_of
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import Refusal
from silo_agent.durable import private_directory, write_durably
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Stored
from silo_agent.problems import Stopped, WentOn
from silo_agent.schemes.half import Seat, Signed
from silo_agent.survivors import judge_survivors

STATE: Final = "threshold.json"
"""``SiloState`` of the round, with the secret share until the partial decryption is signed."""


class ThresholdHalf:
    """One silo in one round. Everything it knows between steps is in its state file."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._encrypter: Encrypter | None = None

    def prepare(self) -> None:
        """Nothing is sent yet: the key is made after training, so that who drops out meanwhile costs nothing.

        (1) The terms withstand whom each threat model assumes hostile, the federation's and this silo's own;
        (2) this silo has signed nothing of this round before: a crash since then makes it a dropout; (3)
        OpenFHE runs here.

        Raises:
            WeakTerms, Unprocessable: (1). OutOfOrder: (2). ConfigurationError: (3).
        """
        # (1)
        terms, signing = self._terms, self._seat.identity.signing
        server_key = self._pinned_server
        for colluding in self._colluding:
            judge_terms(terms, self._seat.silo, signing.verify_key, self._pinned, server_key, colluding)
        # (2)
        if (self._seat.directory / STATE).exists():
            raise OutOfOrder(
                "threshold: this silo began this round before it restarted; it begins none twice"
            )
        # (3)
        with self._worker(terms):
            pass

    def agree(self) -> None:
        """Steps 1 and 2: commit to a key share, show it, and add up the joint key of all who showed theirs.

        Raises:
            PeerFault: what the aggregator relays does not hold; see ``privacy.secagg.threshold``.
        """
        seat, signing, terms = self._seat, self._seat.identity.signing, self._terms
        private_directory(seat.directory.parent)
        private_directory(seat.directory)
        with self._worker(terms) as worker:
            step = begin(
                terms,
                seat.silo,
                signing,
                worker,
                pinned=self._pinned,
                pinned_server=self._pinned_server,
                colluding_silos=max(self._colluding),
            )
        self._send("commit", step)
        commits = seat.delivery.await_step(terms.context, "reveal")
        self._send("reveal", reveal(self._state(), signing, commits))
        reveals = seat.delivery.await_step(terms.context, "manifest")
        self._store(join(self._state(), reveals))

    def seal(self, update: EncodedUpdate, model: Digest) -> Iterator[bytes]:
        """The bodies of the first part, its masks, those of the second, and so on."""
        state = self._state()
        with self._worker(state.terms) as worker:
            self._encrypter = Encrypter(state, worker, model)
            for piece in threshold_stretches(state.terms.row, state.terms.vector_length):
                elements = update.elements(piece.start, piece.length)
                yield from self._encrypter.encrypt(piece.index, elements)

    def manifest(self, ledger_head: Head) -> Signed:
        """Step 3: sign the one update by its digests.

        Raises:
            SealsumError: nothing was encrypted: a bug, not a peer's doing. OutOfOrder: parts are missing.
        """
        if self._encrypter is None:
            raise SealsumError("threshold: expected the update to be encrypted before its manifest")
        step = sign_manifest(self._state(), self._seat.identity.signing, self._encrypter, ledger_head)
        self._store(step.state)
        (manifest,) = step.messages
        return Signed(manifest, {})

    def deliver(self, stored: Stored) -> None:
        """The manifest alone: its ciphertexts follow when everybody's digests are known."""
        self._seat.delivery.send_step(stored.context, "manifest", [stored.contribution.manifest])

    def conclude(self, stored: Stored) -> None:
        """Upload the ciphertexts under the one set of manifests, and help to open the sum of those alone.

        Raises:
            PeerFault: the aggregator shows another set, or a sum that is not theirs; it is told so.
            PolicyRefusal: so it is of a set that a threat model, the federation's or this silo's own, does
                not let be summed.
        """
        delivery = self._seat.delivery
        manifests = delivery.await_step(stored.context, "upload")
        try:
            admitted = admit_cohort(self._state(), manifests)
            judge_survivors(self._seat, tuple(admitted.manifests), tuple(admitted.manifests.values()))
        except (PeerFault, PolicyRefusal):
            self._decline(stored, "upload")
            raise
        self._store(admitted)
        for number, half in stored.parts():
            index, is_mask = divmod(number, 2)
            delivery.put_file(stored.context, "masks" if is_mask else "bodies", index, half)
        delivery.send_step(stored.context, "upload", [])
        inbox = delivery.await_step(stored.context, "partial")
        try:
            step = self._partial(stored, inbox)
        except (Stopped, WentOn):
            raise
        except (PeerFault, WorkerFailed, ConfigurationError):
            self._decline(stored, "partial")
            raise
        # On disk before its first part leaves: after a crash the same parts go, not others with other noise.
        self._store(step.state)
        for index in range(len(PartialDecryption.model_validate_json(step.messages[0].body).parts)):
            delivery.put_file(stored.context, "partials", index, self._part(index).read_bytes())
        self._send("partial", step)

    def _partial(self, stored: Stored, inbox: Sequence[Envelope]) -> Step:
        """This silo's one partial decryption of the one sum, with its parts on disk before it is signed.

        (1) One that was signed before is the answer again, for the same sum only; (2) what is to be opened is
        judged before the secret is touched; (3) each part is decrypted once, of the masks added up here.

        Raises:
            Equivocation: (1). PeerFault: (2), (3); see ``PartialOpener``. WorkerFailed.
        """
        if not inbox:
            raise OutOfOrder("partial: expected the sum's manifest and the silos' manifests, got nothing")
        summed, *manifests = inbox
        state = self._state()
        # (1)
        if (signed := state.signed.get("partial")) is not None:
            word = PartialDecryption.model_validate_json(signed.messages[0].body)
            if word.sum != summed.body_digest:
                raise Equivocation(
                    "partial: this silo has helped to open another sum, and opens none besides"
                )
            return Step(state, signed.messages)
        terms = state.terms
        with self._worker(terms) as worker:
            # (2)
            opener = PartialOpener(state, worker, summed, manifests)
            # (3)
            for piece in threshold_stretches(terms.row, terms.vector_length):
                masks = self._masks(stored, state, piece.index, piece.half_bytes(terms.row))
                write_durably(self._part(piece.index), opener.decrypt(piece.index, masks))
        return sign_partial(state, self._seat.identity.signing, opener)

    def _masks(
        self, stored: Stored, state: SiloState, index: int, size: int
    ) -> Iterator[tuple[SiloId, bytes]]:
        """Every holder's masks of one part: the own from disk, the others' from the aggregator."""
        parts = sum(1 for _ in threshold_stretches(state.terms.row, state.terms.vector_length))
        for place, silo in enumerate(state.holders):
            if silo == self._seat.silo:
                yield silo, stored.part(2 * index + 1)
            else:
                number = place * parts + index
                yield silo, self._seat.delivery.get_file(stored.context, "masks", number, size)

    def _decline(self, stored: Stored, step: str) -> None:
        """Tell the aggregator that this silo does not go on, so that nobody waits for the deadline."""
        refusal = Refusal(
            silo=self._seat.silo,
            rule="sum.refused",
            sentence="The silo does not help to open this sum.",
            expected="the one sum of the manifests that this silo was shown, under the joint key it added up",
            got="another",
            remedy="compare this silo's log with the aggregator's",
        )
        signing = self._seat.identity.signing
        envelope = sign_message(refusal, "refusal", stored.context, self._seat.silo, signing)
        try:
            self._seat.delivery.send_step(stored.context, step, [envelope])
        except PeerFault:
            return  # what matters is that nothing was opened; the caller raises the reason

    @property
    def _terms(self) -> ThresholdTerms:
        return terms_of(self._seat.plan, self._seat.aggregator, self._pinned_server)

    @property
    def _pinned(self) -> dict[SiloId, str]:
        charter = self._seat.charter
        return {silo: charter.member(silo).verify_key for silo in charter.silos}

    @property
    def _pinned_server(self) -> str:
        return self._seat.charter.member(self._seat.aggregator).verify_key

    @property
    def _colluding(self) -> list[int]:
        return [colluding_silos(policy.model.spec) for policy in self._seat.policies]

    def _worker(self, terms: ThresholdTerms) -> AbstractContextManager[Worker]:
        return self._seat.openfhe.worker(terms.row)

    def _part(self, index: int) -> Path:
        return self._seat.directory / f"partial-{index:05d}"

    def _send(self, step: str, signed: Step) -> None:
        """On disk first, then out: whatever crashes in between, no second message is ever signed."""
        self._store(signed.state)
        self._seat.delivery.send_step(signed.state.terms.context, step, signed.messages)

    def _store(self, state: SiloState) -> None:
        write_durably(self._seat.directory / STATE, state.to_bytes())

    def _state(self) -> SiloState:
        """As a restarted process finds it.

        Raises:
            StateDamaged: it is gone or cannot be read; this silo takes no further part in the round.
        """
        path = self._seat.directory / STATE
        try:
            return SiloState.from_bytes(path.read_bytes())
        except FileNotFoundError as error:
            raise StateDamaged(f"{path}: there is no state of this round") from error

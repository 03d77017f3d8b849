"""Which manifests make up one sum, judged the same way by the server and by every silo."""

from __future__ import annotations

from collections.abc import Mapping

from privacy.errors import MalformedMessage
from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.faults import Equivocation
from privacy.secagg.threshold.faults import BadJointKey, BadSum, KeyholderMissing
from privacy.secagg.threshold.messages import CiphertextManifest
from privacy.secagg.threshold.parts import threshold_part_count
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.wire.envelope import Verified


def check_manifest(terms: ThresholdTerms, joint_key: Digest, manifest: Verified[CiphertextManifest]) -> None:
    """(1) Its signer speaks for itself; (2) under this joint key; (3) from this model, row and length.

    Raises:
        Equivocation: (1), (3). BadJointKey: (2).
    """
    silo, message = SiloId(manifest.sender), manifest.message
    # (1)
    if message.silo != silo:
        raise Equivocation(f"manifest of silo {silo}: it speaks for silo {message.silo}")
    # (2)
    if message.joint_key != joint_key:
        raise BadJointKey(
            f"manifest of silo {silo}: its joint key is not the sum of the committed shares known here"
        )
    # (3)
    expected = (terms.model, terms.parameters, terms.vector_length)
    parts = threshold_part_count(terms.row, terms.vector_length)
    if (message.model, message.parameters, message.vector_length) != expected or len(message.masks) != parts:
        raise Equivocation(f"manifest of silo {silo}: it is of another model, row of parameters or length")


def check_cohort(
    terms: ThresholdTerms,
    joint_key: Digest,
    holders: tuple[SiloId, ...],
    manifests: Mapping[SiloId, Verified[CiphertextManifest]],
) -> None:
    """(1) Exactly the holders of the joint key; (2) each manifest as ``check_manifest``; (3) no digest
    occurs twice: whoever repeats another silo's digests would have that silo's update counted again.

    Raises:
        KeyholderMissing, MalformedMessage: (1). Equivocation, BadJointKey: (2). BadSum: (3).
    """
    # (1)
    missing = sorted(set(holders) - set(manifests))
    if missing:
        raise KeyholderMissing(
            f"manifest: {', '.join(missing)} hold shares of the joint key and are gone; without them nothing "
            "opens, start another round"
        )
    if set(manifests) != set(holders):
        raise MalformedMessage("manifest: expected manifests of the joint key's holders only")
    # (2)
    for manifest in manifests.values():
        check_manifest(terms, joint_key, manifest)
    # (3)
    digests = [each for it in manifests.values() for each in (*it.message.bodies, *it.message.masks)]
    if len(set(digests)) != len(digests):
        raise BadSum("manifest: a part is named twice; each silo must encrypt its own, freshly")

"""What each way of adding up updates can keep of what a threat model assumes, judged when it is loaded.

Additive splits updates over share servers. Every other scheme has one server, the aggregator, and keeps less
of some assumptions; what it cannot keep is refused here, so that nobody relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.assumption import assumption_of
from policies.findings import Finding
from policies.schema import ThreatModel
from privacy.secagg.catalogue import SCHEMES
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES
from privacy.secagg.pairwise.terms import MAX_SILOS, least_threshold

ONE_SERVER_SEES_NO_SHARES = (
    "one server sees masked vectors or ciphertexts only, and there is no second party to check shares with; "
    "clipping at the silo and sanity checks on the sum are what is left"
)
"""Why ``require.validity`` comes with share servers or not at all."""


def share_servers_with_additive_only(model: ThreatModel) -> Iterator[Finding]:
    """What is assumed of share servers holds nothing up where no share goes to one.

    A scheme that is not available is told by its own rule alone.
    """
    servers, scheme = model.spec.assume.share_servers, model.spec.require.secagg.scheme
    if scheme == "additive" and servers is None:
        yield Finding(
            "share_servers_missing",
            "additive splits each update over share servers; how many may collude only its authors know",
            "assume.share_servers with count and max_colluding",
            "nothing",
            "add assume.share_servers, or require a scheme with one server, such as pairwise",
        )
    elif scheme != "additive" and scheme in SCHEMES and servers is not None:
        yield Finding(
            "share_servers_idle",
            f"with {scheme} the aggregator is the one server; an idle line deceives",
            f"no assume.share_servers with {scheme}",
            f"{servers.count} share servers, {servers.max_colluding} of them colluding",
            "remove assume.share_servers, or write scheme: additive",
        )


def threshold_reachable(model: ThreatModel) -> Iterator[Finding]:
    """t silos must sign one set and unmask it, so t may not exceed who is left after all dropouts allowed.

    Judged at n = min_silos_open + max_dropouts, the smallest cohort that may lose so many: in a larger one,
    n − max_dropouts grows with n and t half as fast.
    """
    spec = model.spec
    if spec.require.secagg.scheme != "pairwise":
        return
    limits, assumed = spec.limits, assumption_of(spec)
    silos = limits.min_silos_open + limits.max_dropouts
    if silos > MAX_SILOS:
        yield Finding(
            "cohort_beyond_scheme",
            "every silo agrees on a mask with every other, so a cohort of pairwise has a largest size",
            f"min_silos_open + max_dropouts of at most {MAX_SILOS} with pairwise",
            f"{limits.min_silos_open} + {limits.max_dropouts}",
            "lower limits.min_silos_open, or write scheme: additive",
        )
        return
    threshold = least_threshold(silos, assumed)
    if threshold > limits.min_silos_open:
        yield Finding(
            "threshold_unreachable",
            f"of {silos} silos {threshold} must agree on the survivors (malicious aggregator, "
            f"{assumed.colluding_silos} colluding silos: 2t > n + c); after {limits.max_dropouts} dropouts "
            f"only {limits.min_silos_open} are left",
            f"limits.min_silos_open of at least {assumed.colluding_silos + limits.max_dropouts + 1} "
            "(colluding silos + max_dropouts + 1)",
            str(limits.min_silos_open),
            "raise limits.min_silos_open, or lower limits.max_dropouts",
        )


def one_key_at_all_silos(model: ThreatModel) -> Iterator[Finding]:
    """With one key at all silos, one silo opens everything, and ciphertexts can be altered unseen.

    Silos that collude without the aggregator hold no ciphertexts of others by the protocol. They are refused
    all the same: their copy of the key turns any copy of a ciphertext (a proxy's, a backup's, a stolen
    disk's) into an update, and nothing that is assumed here keeps such copies from them.
    Raw CKKS decryptions give the key away (Li and Micciancio 2021, key recovery).
    """
    spec = model.spec
    scheme = spec.require.secagg.scheme
    if scheme not in ONE_KEY_SCHEMES:
        return
    aggregator = spec.assume.aggregator
    if aggregator.behaviour == "malicious":
        yield Finding(
            f"{scheme}_malicious_aggregator",
            "whoever adds ciphertexts can scale or replace them: the silos' count of contributors does not "
            "show it, and the sum they open can be one silo's update",
            f"assume.aggregator.behaviour: honest_but_curious with {scheme}",
            aggregator.behaviour,
            "write scheme: additive or pairwise",
        )
    if aggregator.colludes_with_silos > 0:
        yield Finding(
            f"{scheme}_key_at_colluders",
            "all silos hold the one secret key, so an aggregator colluding with one reads every update",
            f"assume.aggregator.colludes_with_silos: 0 with {scheme}",
            str(aggregator.colludes_with_silos),
            "write scheme: additive or pairwise",
        )
    if spec.assume.silos.max_colluding > 0:
        yield Finding(
            f"{scheme}_key_shared_by_colluders",
            "all silos hold the one secret key: to silos that collude, any copy of a ciphertext, from a "
            "proxy, a backup or a disk, is an update",
            f"assume.silos.max_colluding: 0 with {scheme}",
            str(spec.assume.silos.max_colluding),
            "write scheme: additive or pairwise",
        )
    if scheme == "ckks" and spec.assume.recipient.kind != "silos":
        yield Finding(
            "ckks_decryption_leaves_silos",
            "an approximate decryption that leaves the silos gives the key away (Li and Micciancio 2021)",
            "assume.recipient.kind: silos with ckks",
            spec.assume.recipient.kind,
            "write scheme: additive, pairwise or bfv",
        )


def joint_key_little_flooded(model: ThreatModel) -> Iterator[Finding]:
    """threshold_ckks adds a Gaussian of σ = 2^20 to a partial decryption, some 10 bits above a fresh error.

    A statistical argument needs 40 bits (Asharov et al. 2012), which threshold_bfv has. Whoever holds the
    partial decryptions can compute the unrounded sum; whoever chooses ciphertexts, or knows most shares of
    the key, learns most from it. So nobody who may try is assumed.
    """
    spec = model.spec
    if spec.require.secagg.scheme != "threshold_ckks":
        return
    aggregator = spec.assume.aggregator
    little = (
        "in a partial decryption of threshold_ckks only some 10 bits of noise hide a silo's part of the key"
    )
    if aggregator.behaviour == "malicious":
        yield Finding(
            "threshold_ckks_malicious_aggregator",
            f"{little}, and the aggregator can compute the unrounded sum from them",
            "assume.aggregator.behaviour: honest_but_curious with threshold_ckks",
            aggregator.behaviour,
            "write scheme: threshold_bfv",
        )
    for path, colluding in (
        ("aggregator.colludes_with_silos", aggregator.colludes_with_silos),
        ("silos.max_colluding", spec.assume.silos.max_colluding),
    ):
        if colluding > 0:
            yield Finding(
                "threshold_ckks_colluders",
                f"{little}: colluders take their own parts out and look at what is left",
                f"assume.{path}: 0 with threshold_ckks",
                str(colluding),
                "write scheme: threshold_bfv",
            )


def validity_available(model: ThreatModel) -> Iterator[Finding]:
    """Checks inside shares come with a scheme that has shares and checks them."""
    validity, name = model.spec.require.validity, model.spec.require.secagg.scheme
    scheme = SCHEMES.get(name)
    offered = scheme.validity if scheme else frozenset({"none"})
    if validity in offered:
        return
    if name == "additive":
        yield Finding(
            "validity_unavailable",
            "this release cannot check an update inside its shares, so it could not keep this requirement",
            f"require.validity: {' | '.join(sorted(offered))}",
            validity,
            "write validity: none, and silo_poisoning in assume.out_of_scope",
        )
    else:
        yield Finding(
            "validity_without_shares",
            f"with {name} no update can be checked: {ONE_SERVER_SEES_NO_SHARES}",
            f"require.validity: none with {name}",
            validity,
            "write validity: none and silo_poisoning in assume.out_of_scope, or write scheme: additive",
        )

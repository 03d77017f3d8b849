"""Attack: a threat model that calls itself a child of the agreed one, and is looser. No party takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator.held_charter import hold_charter
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model, policy_digest
from policies.profiles import profile_text
from privacy.roster import Charter
from tests.federation import Federation
from tests.unit.policies.policies_terms import altered, bent_text

AGREED = profile_text("demo-hospitals").replace("rounds_max: 100", "rounds_max: 90")
LOOSE = AGREED.replace("job: 3.0", "job: 8.0")


def _child(text: str, parent: str) -> str:
    named = {"/metadata.name": "child", "/metadata.extends": f"sha256:{policy_digest(parent)}"}
    return bent_text(text, named)


def _judged(charter: Charter) -> None:
    load_threat_model(charter.policy_text, charter.policy_parents)


def _charter(child: str, *parents: str) -> Charter:
    return altered(
        Federation().charter, policy=policy_digest(child), policy_text=child, policy_parents=parents
    )


def test_a_child_that_loosens_is_refused_by_whoever_reads_the_charter() -> None:
    _judged(_charter(_child(AGREED, AGREED), AGREED))
    with pytest.raises(PolicyInvalid, match=r"limits\.epsilon\.job: a child threat model may only tighten"):
        _judged(_charter(_child(LOOSE, AGREED), AGREED))


def test_a_loose_parent_cannot_stand_in_for_the_agreed_one() -> None:
    """It is found by its digest: another text under the same name is another parent."""
    with pytest.raises(PolicyInvalid, match="extends_unknown"):
        _judged(_charter(_child(LOOSE, AGREED), LOOSE))


def test_leaving_the_parent_out_does_not_skip_the_comparison() -> None:
    with pytest.raises(PolicyInvalid, match="extends_unknown"):
        _judged(_charter(_child(LOOSE, AGREED)))


def test_a_loosening_cannot_be_laundered_over_two_generations() -> None:
    """Each is held against the one that it names, and that one against its own parent."""
    tight = _child(AGREED, AGREED)
    launderer = _child(LOOSE, tight)
    grandchild = _child(LOOSE, launderer)
    with pytest.raises(PolicyInvalid, match=r"limits\.epsilon\.job"):
        _judged(_charter(grandchild, launderer, tight, AGREED))


def test_leaving_a_line_out_loosens_nothing_unseen() -> None:
    parent = AGREED.replace("upload_bytes_max: 64MiB", "upload_bytes_max: 1MiB")
    child = _child(parent, parent).replace("    upload_bytes_max: 1MiB\n", "")
    assert "upload_bytes_max" not in child
    with pytest.raises(PolicyInvalid, match=r"limits\.upload_bytes_max"):
        _judged(_charter(child, parent))


def test_a_server_does_not_start_under_it(tmp_path: Path) -> None:
    federation = Federation(policy_text=_child(LOOSE, profile_text("demo-hospitals")))
    identity = federation.identity("aggregator", tmp_path / "aggregator")
    with pytest.raises(PolicyInvalid, match=r"extends_loosens"):
        hold_charter(identity, "aggregator", None)

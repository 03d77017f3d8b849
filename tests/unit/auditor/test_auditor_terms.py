"""What the verifier computes anew of a plan's scheme: the same as the platform, by a program of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sealsum_verify.encoding import Fault
from sealsum_verify.messages import Roster
from sealsum_verify.scheme_terms import _least_threshold, _row, ciphertext_parts, part_count
from sealsum_verify.threat_model import hostile

import policies
from policies.assumption import assumption_of
from policies.loader import load_threat_model
from policies.schema import ThreatModel
from policies.yaml_text import read_yaml
from privacy.errors import Unprocessable
from privacy.plan import VectorTerms
from privacy.secagg import parts
from privacy.secagg.he.framing import he_part_count
from privacy.secagg.he.parameters import PARAMETERS, row_for
from privacy.secagg.pairwise.terms import least_threshold
from tests.federation import demo_policy_text

PROFILES = sorted((Path(policies.__file__).parent / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_it_reads_in_each_shipped_profile_whom_the_platform_assumes_hostile(profile: Path) -> None:
    text = profile.read_text("utf-8")
    assumed = assumption_of(ThreatModel.model_validate(read_yaml(text)[0]).spec)
    assert hostile(text) == (assumed.aggregator == "malicious", assumed.colluding_silos)


@given(
    st.sampled_from(["trusted", "honest_but_curious", "malicious"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.booleans(),
)
def test_it_reads_both_ways_of_writing_a_map(behaviour: str, told: int, among: int, flow: bool) -> None:
    fields = [f"behaviour: {behaviour}", f"colludes_with_silos: {told}"]
    aggregator = f" {{{', '.join(fields)}}}" if flow else "".join(f"\n      {field}" for field in fields)
    text = f"spec:\n  assume:\n    aggregator:{aggregator}  # why\n    silos: {{max_colluding: {among}}}\n"
    assert hostile(text) == (behaviour == "malicious", max(told, among))


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_word_in_quotes_on_a_line_of_its_own_is_the_word(quote: str) -> None:
    text = f"spec:\n  assume:\n    aggregator:\n      behaviour: {quote}trusted{quote}  # why\n"
    assert hostile(text)[0] is False


@pytest.mark.parametrize("text", ["", "kind: ThreatModel\n", "spec:\n  assume:\n    network: {tls: true}\n"])
def test_what_a_threat_model_leaves_out_has_the_strict_value(text: str) -> None:
    assert hostile(text) == (True, 2)


MODEL = "spec:\n  assume:\n    aggregator: {behaviour: malicious, colludes_with_silos: 3}\n"


@pytest.mark.parametrize(
    "text",
    [
        MODEL + "    aggregator: {behaviour: trusted}\n",
        MODEL.replace("malicious,", "malicious, behaviour: trusted,"),
        MODEL.replace("malicious", "&x malicious"),
        MODEL.replace("malicious", "!!str malicious"),
        MODEL.replace("malicious", '"trusted"'),
        MODEL.replace("malicious", "'trusted'"),
        MODEL.replace("malicious", "benign"),
        'spec:\n  assume:\n    aggregator:\n      behaviour: "trus\\x74ed"\n',
        "spec:\n  assume:\n    aggregator:\n      behaviour: 'it''s'\n",
        MODEL.replace("3}", "0x0}"),
        MODEL.replace("3}", "-1}"),
        MODEL.replace("{behaviour: malicious,", "{behaviour: malicious,\n"),
        MODEL.replace("aggregator: {", "aggregator:\t{"),
        MODEL + "---\n" + MODEL,
        "# note\u2028spec:\n" + MODEL,
        "# note\u0085spec:\n" + MODEL,
        "# note\rspec:\n" + MODEL,
        "spec:\n  <<: {assume: {}}\n",
        "spec:\n  assume: |\n    aggregator: {behaviour: trusted}\n",
        "spec: word\n",
        "- - x\n",
        "- key: value\n",
        "spec:\n  assume: [" + "[" * 5000 + "]" * 5000 + "]\n",
    ],
)
def test_a_form_that_it_does_not_know_is_a_fault_and_never_a_guess(text: str) -> None:
    with pytest.raises(Fault, match=r"policy/policy\.yaml"):
        hostile(text)


@given(st.integers(2, 100), st.integers(0, 30), st.booleans())
def test_the_least_threshold_is_the_platforms(silos: int, colluding: int, malicious: bool) -> None:
    behaviour = "malicious" if malicious else "honest_but_curious"
    text = f"spec:\n  assume:\n    aggregator: {{behaviour: {behaviour}, colludes_with_silos: {colluding}}}\n"
    text += "    silos: {max_colluding: 0}\n"
    spec = load_threat_model(demo_policy_text("pairwise")).model.spec
    wanted = assumption_of(
        spec.model_copy(
            update={
                "assume": spec.assume.model_copy(
                    update={
                        "aggregator": spec.assume.aggregator.model_copy(
                            update={"behaviour": behaviour, "colludes_with_silos": colluding}
                        ),
                        "silos": spec.assume.silos.model_copy(update={"max_colluding": 0}),
                    }
                )
            }
        )
    )
    roster = Roster("", {"policy_text": text}, {})
    assert _least_threshold({"cohort": [{}] * silos}, roster) == least_threshold(silos, wanted)


@given(
    st.sampled_from(["bfv", "ckks"]),
    st.integers(1, 1000),
    st.integers(1, 30),
    st.floats(1e-3, 1e3, allow_nan=False),
)
def test_the_row_of_parameters_is_the_platforms(scheme: str, silos: int, bits: int, bound: float) -> None:
    terms = VectorTerms(coordinate_bound=bound, scale_bits=bits)
    plan = {"scheme": scheme, "vector": terms.model_dump(mode="json")}
    try:
        expected = row_for(scheme, terms, silos)
    except Unprocessable:
        if scheme == "bfv":  # for CKKS, whose room depends on its noise, the one row is all it compares
            with pytest.raises(Fault, match="no row of the scheme"):
                _row(plan, silos, "x")
        return
    assert _row(plan, silos, "x") == expected


@given(st.integers(1, 10**9), st.sampled_from(sorted(PARAMETERS)))
def test_vectors_have_as_many_parts_as_on_the_platform(parameters: int, row: str) -> None:
    plan = {"parameters": parameters, "he": row, "vector": {}}
    assert part_count(plan) == parts.part_count(parameters + 1)
    assert ciphertext_parts(plan) == he_part_count(PARAMETERS[row], parameters + 1)

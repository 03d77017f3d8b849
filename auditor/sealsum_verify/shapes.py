"""What each document must look like before a check may read it: a literal table and its matcher.

A field's shape is an atom (a pattern for a whole string), ``int``, ``object``, the name of another shape,
``[shape]`` for a list, ``{shape}`` for a map by name, or ``shape?`` where null is allowed. A document has
exactly the fields of its line, unless the line ends in ``*``; a field whose name ends in ``~`` may be absent.
"""

from __future__ import annotations

import re

from sealsum_verify.encoding import demand

ATOMS = {
    "hex": re.compile(r"[0-9a-f]{64}"),
    "name": re.compile(r"[a-z0-9][a-z0-9._-]{0,62}"),
    "real": re.compile(r"[0-9]{1,25}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,2})?"),
    "cost": re.compile(r"[0-9]{1,20}\.[0-9]{4}"),
    "signed": re.compile(r"-?[0-9]{1,25}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,2})?"),
    "session": re.compile(r"[0-9a-f]{32}"),
    "signature": re.compile(r"[0-9a-f]{128}"),
    "instant": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"),
    "text": re.compile(r"(?s).*"),
}
SHAPES = {
    "manifest.json": "pack:text federation:name job:name created_at:text signer:name files:object",
    "officer": "name:name legal_entity:text verify_key:hex",
    "head": "seq:int hash:hex",
    "envelope": "kind:text context:hex sender:name recipient:name body:text signature:signature",
    "entry": "origin:text seq:int prev:hex at:text kind:text body:object signature:signature",
    "charter": "federation:name epoch:int previous:hex? officers:hex members:[member] revoked:[hex] "
    "policy:hex policy_text:text policy_parents:[text]",
    "endorsed": "kind:text context:hex body:text signatures:{signature}",
    "officers": "federation:name version:int threshold:int officers:[officer] one_institution:text",
    "member": "id:name role:text legal_entity:text operator:text verify_key:hex sealing_key:text url:text",
    "job": "job:name federation:name charter:hex purpose:text dataset:name data:data model:model "
    "initial_model:hex training:training dp:dp? rounds:int scheme:text "
    "vector:vector further~:[further] query~:query validity:validity? min_silos:int round_deadline_s:int",
    "query": "kind:text *",
    "data": "features:[feature] label:object *",
    "feature": "column:text *",
    "model": "layout:[tensor] *",
    "tensor": "name:text shape:[int]",
    "training": "local_steps:int *",
    "dp": "model:text noise_shares:int? unit:text adjacency:text sampling:text sample_rate:real "
    "noise_multiplier:real clip_l2:real normaliser:real delta:real records_per_unit~:int metrics~:metrics",
    "plan": "protocol:text session:session federation:name charter:hex roster_epoch:int policy:hex job:name "
    "job_digest:hex round:int rounds:int scheme:text threshold:int? he:text? validity:validity? "
    "architecture:hex model:hex parameters:int cohort:[silo] servers:[server] "
    "training:training dp:dp? vector:vector further~:[further] query~:query min_survivors:int deadline_s:int",
    "further": "name:name coordinates:int terms:vector opens_to:text",
    "metrics": "names:[name] noise_multiplier:real loss_cap:real?",
    "vector": "coordinate_bound:real scale_bits:int ring_bits:int per_element~:int",
    "validity": "kind:text norm_bound:real",
    "silo": "silo:name verify_key:hex",
    "server": "server:name verify_key:hex",
    "offer": "plan:plan job:envelope log:offered_log",
    "offered_log": "checkpoint:text since:log_head consistency:[hex] witnessed:text? "
    "witnessed_consistency:[hex]",
    "log_head": "size:int root:hex",
    "record": "seq:int at:text kind:text fields:object",
    "disclosed": "salt:session *",
    "redacted": "digest:hex",
    "manifest": "silo:name model:hex vector_length:int parts:[hex] seeds:{hex} ledger_head:head",
    "accepted": "server:name manifests:{hex}",
    "survivors": "server:name survivors:[name] manifests:[hex]",
    "opening": "server:name survivors:hex parts:[hex]",
    "pairwise_keys": "sealing_key:text mask_key:hex seed_commitment:hex",
    "pairwise_masked": "silo:name key_set:hex model:hex dealers:[name] unusable:[name] parts:[hex] "
    "ledger_head:head",
    "pairwise_consistency": "key_set:hex dealers:[name] survivors:[name] inputs:[hex]",
    "he_manifest": "silo:name model:hex parameters:name key:hex vector_length:int parts:[hex] "
    "ledger_head:head",
    "he_sum": "parameters:name key:hex vector_length:int survivors:[name] manifests:[hex] parts:[hex]",
    "he_opened": "silo:name sum:hex parts:[hex]",
    "threshold_commit": "commitment:hex",
    "threshold_manifest": "silo:name model:hex parameters:name joint_key:hex vector_length:int bodies:[hex] "
    "masks:[hex] ledger_head:head",
    "threshold_sum": "joint_key:hex silos:[name] manifests:[hex] bodies:[hex] masks:[hex]",
    "threshold_partial": "sum:hex parts:[hex]",
    "validity_manifest": "silo:name terms:hex model:hex vector_length:int parts:[hex] seeds:{hex} "
    "ledger_head:head",
    **dict.fromkeys(
        ("coin1_commitment", "coin2_commitment"), "server:name step:int frozen:hex commitment:hex"
    ),
    **dict.fromkeys(("coin1_reveal", "coin2_reveal"), "server:name step:int frozen:hex value:hex"),
    "validity_proof": "silo:name shares:hex coin:hex witness:hex",
    "validity_verdict": "server:name coin:hex verdicts:[silo_verdict]",
    "silo_verdict": "silo:name check:hex failed:text?",
    "result": "outcome:text reason:text survivors:[name] model_in:hex model_out:hex? openings:int "
    "job_state:text further~:{[signed]}",
    "refusal": "silo:name rule:text sentence:text expected:text got:text remedy:text",
    "round": "offer:envelope manifests:{envelope} refusals:{envelope} accepted:[envelope] "
    "survivors:[envelope] openings:[envelope] keys:{envelope} consistency:{envelope} sum:[envelope] "
    "opened:{envelope} coins:[envelope] proofs:{envelope} verdicts:[envelope] result:envelope",
    "ledger_open": "format:int dataset:name unit:text adjacency:text patient_id:text epsilon:caps "
    "delta_max:real period_days:int? filter:orders?",
    "caps": "round:real job:real lifetime:real period:real? fallback:fallback_caps?",
    "fallback_caps": "round:real job:real lifetime:real period:real?",
    "orders": "order:int fallback_order:int",
    "reserve": "job:name job_digest:hex dataset:name first_round:int last_round:int event:event "
    "fallback:event? delta:real log_head:log_head",
    "written_off": "after:head lost:[head] witnesses:[name]",
    "begin": "job_digest:hex context:hex round:int log_head:log_head",
    "event": "mechanism:text sample_rate:real noise_multiplier:real steps:int",
    "handover": "body:handed_over verify_key:hex signature:signature",
    "handed_over": "federation:name silo:name job:name job_digest:hex dataset:name people:{person} "
    "approvals:[signed_decision] *",
    "person": "roles:[name] verify_key:hex",
    "signed_decision": "body:text verify_key:hex signature:signature",
    "decision": "federation:name silo:name job:name job_digest:hex dataset:name decision:text by:name "
    "role:name at:instant expires_at:instant *",
    "redactions": "redactions:[redaction] *",
    "redaction": "entry:text field:text count:int reason:text sha256:hex?",
    "replay": "delta:real? silos:{replayed}",
    "replayed": "caps:object blocks:[block]",
    "block": "entry:int at:text first_round:int last_round:int event:event fallback:event? after:spent",
    "empirical": "entry:text attack:text protection:text epsilon_at_least:cost epsilon_claimed_there:cost",
    "claim": "silos:{spent} statement:text model~:object empirical~:empirical? *",
    "spent": "epsilon:cost epsilon_rdp:cost epsilon_fallback:cost epsilon_fallback_rdp:cost mu:cost? "
    "rounds:int steps:int",
}


def check_shape(value: object, shape: str, entry: str, path: str = "document") -> None:
    """Raise a ``Fault`` on ``entry`` that names the first field which does not fit ``shape``."""
    expected = f"{path}: expected {shape}"
    if shape.endswith("?"):
        if value is not None:
            check_shape(value, shape[:-1], entry, path)
    elif shape.startswith("["):
        demand(isinstance(value, list), entry, expected)
        for index, item in enumerate(value if isinstance(value, list) else ()):
            check_shape(item, shape[1:-1], entry, f"{path}[{index}]")
    elif shape.startswith("{"):
        demand(isinstance(value, dict), entry, expected)
        for key, item in (value if isinstance(value, dict) else {}).items():
            check_shape(key, "name", entry, f"a name in {path}")
            check_shape(item, shape[1:-1], entry, f"{path}.{key}")
    elif shape in ATOMS:
        demand(isinstance(value, str) and ATOMS[shape].fullmatch(value) is not None, entry, expected)
    elif shape in ("int", "object"):
        demand(type(value) is (int if shape == "int" else dict), entry, expected)  # True is no int here
    else:
        exact = not SHAPES[shape].endswith("*")
        demand(isinstance(value, dict), entry, expected)
        record = value if isinstance(value, dict) else {}
        named = [pair.split(":") for pair in SHAPES[shape].removesuffix(" *").split()]
        fields = {
            name.rstrip("~"): inner
            for name, inner in named
            if not name.endswith("~") or name.rstrip("~") in record
        }
        demand(set(fields) <= set(record), entry, f"{expected} with {', '.join(sorted(fields))}")
        demand(not exact or len(record) == len(fields), entry, f"{expected} and no other fields")
        for field, inner in fields.items():
            check_shape(record[field], inner, entry, f"{path}.{field}")

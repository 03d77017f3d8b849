"""The policy file of a drawing: its text, with the answer behind each group of lines as a comment."""

from __future__ import annotations

from policies.drawing import Answers, Terms

_NORM = 24
"""Room for an update of a small model and its noise, as in demo-validity; a job claims less."""


def policy_text(answers: Answers, terms: Terms) -> str:
    """YAML that the loader accepts and an auditor reads line by line."""
    hostile = terms.behaviour == "malicious"
    servers = ""
    if terms.scheme == "additive":
        servers = (
            "    # One honest operator is enough to keep every update hidden.\n"
            f"    share_servers: {{count: {answers.operators}, max_colluding: {answers.operators - 1}, "
            "distinct_operators: true}\n"
        )
    open_threats = ["silo_host_compromise", *(["silo_poisoning"] if answers.poisoning else [])]
    round_, job, lifetime = terms.epsilon
    roles = ["data_steward", "dpo", *(["security"] if answers.approvers > 2 else [])]
    norm = ""
    if terms.validity != "none":
        norm = (
            f"    update_norm_max: {_NORM}  # room for the noise of few people; lower it to what jobs claim\n"
        )
    return f"""\
# {answers.name}: written by `sealsum policy init` from the answers of those who founded the federation.
# Read it aloud to your data protection officer (`sealsum policy explain`), change it, and sign it.
apiVersion: sealsum/v1
kind: ThreatModel
metadata: {{name: {answers.name}, version: 1}}
spec:
  mode: enforce
  data_class: {answers.data_class}

  assume:
    # {"It may lie to anybody and tamper." if hostile else "It follows the protocol and looks at everything."}
    aggregator: {{behaviour: {terms.behaviour}, colludes_with_silos: {answers.colluding}}}
{servers}\
    silos:
      max_colluding: {answers.colluding}
      max_poisoning: {int(answers.poisoning)}
      distinct_legal_entities: {str(not answers.one_institution).lower()}
    recipient: {{kind: {answers.recipient}, access: white_box}}
    network: {{tls_inspection: {str(answers.tls_inspection).lower()}}}
    out_of_scope: [{", ".join(open_threats)}]

  require:
    secagg: {{scheme: {terms.scheme}}}
    dp:
      model: local
      unit: patient
      max_records_per_unit: {answers.records_per_person}
      adjacency: add_remove
      sampling: poisson
      accountant: pld
      secure_rng: true
    validity: {terms.validity}
    approvals: {{n: {answers.approvers}, roles: [{", ".join(roles)}], automatic: refused}}

  limits:
    min_silos_open: {terms.minimum}
    max_dropouts: {terms.dropouts}
    max_weight_share: 0.4
    epsilon: {{round: {round_:g}, job: {job:g}, lifetime: {lifetime:g}}}
    delta_max: {terms.delta:g}
    clip_l2_max: 1.0
{norm}\
    min_records: {answers.records}
    upload_bytes_max: 512MiB
    rounds_max: 200

  allow:
    algorithms: [dp_fedsgd, dp_fedavg]
    # Nothing until somebody has read an architecture: add its digest here (sha256:…).
    architectures: []

  release:
    metrics: {{names: [], dp: withheld}}
    model: {{to: {"silos" if answers.recipient == "silos" else "researchers"}, when: job_end}}

  evidence: {{witnesses_min: {terms.witnesses}}}
  retention: {{evidence_days: 2190}}
"""

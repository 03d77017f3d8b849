"""Which part of a pack helps with which text that compliance teams work by: mapped to, and no more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Control:
    """One source, what it asks for, and what of a pack is mapped to it."""

    source: str
    asks: str
    mapped: str
    left: str
    """What remains for people to do or judge."""


CONTROLS = (
    Control(
        "HIPAA expert determination, 45 CFR 164.514(b)(1)",
        "an expert who determines and documents that the risk of re-identification is very small",
        "dp/claim.json, dp/ledger/, dp/accountant-replay.json, tests/attack.json",
        "the expert's judgement and signature; recipients and their means",
    ),
    Control(
        "GDPR Art. 5(2), 30 and 35",
        "accountability, records of processing, and an impact assessment of likely high risks",
        "data/card.json (purpose, schema), policy/, silos/ (approvals), rounds/ and log/ (who processed "
        "what)",
        "legal basis, proportionality, and the controller's own record and assessment",
    ),
    Control(
        "EDPB Opinion 28/2024 on AI models",
        "a case-by-case answer whether a model is anonymous: tests against extraction and inference, "
        "documented",
        "dp/claim.json with its limits, tests/attack.json, policy/policy.yaml (who is assumed to attack)",
        "the case-by-case assessment; a small ε is an argument in it and not its result",
    ),
    Control(
        "EU AI Act (Regulation 2024/1689), Art. 12 and 19",
        "automatic logs over a high-risk system's lifetime, kept for at least six months",
        "log/, rounds/, and retention.evidence_days of the threat model",
        "logs of the system in use: this pack ends with the trained model",
    ),
    Control(
        "DORA (Regulation 2022/2554), Art. 9 and 17",
        "integrity of data and records, and a log of ICT-related incidents",
        "log/ (signed, append-only), manifest.json, refusals in rounds/",
        "incident classification and reporting",
    ),
    Control(
        "GLBA Safeguards Rule, 16 CFR 314.4",
        "access controls, encryption, and logs of what authorised users do",
        "who/ (parties and keys), silos/ (approvals), log/; messages signed and sealed end to end",
        "the information-security programme around it",
    ),
    Control(
        "SR 26-2, model risk (supersedes SR 11-7)",
        "an inventory of models with data, purpose, limits and validation",
        "job/job.json, data/card.json, the chain of model digests in rounds/, limits in dp/claim.json",
        "validation of the model's performance; its owner and its tier",
    ),
    Control(
        "NIST SP 800-226",
        "what a claim of differential privacy must state, from unit to known limits",
        "dp/claim.json, item by item; dp/ledger/ to compute it again",
        "whether this unit and this ε are enough for these people",
    ),
    Control(
        "NIST AI 100-2",
        "a taxonomy of attacks; here at least one test for each class that training is exposed to",
        "tests/attack.json: membership, reconstruction, poisoning, canaries, reading at a server",
        "attacks on the deployed model, such as evasion",
    ),
    Control(
        "ISO/IEC 27001:2022 and 27701",
        "logging, access control, cryptography, and records of processing of personal data",
        "log/, who/, silos/, software/sbom.cdx.json",
        "the management system and its audit",
    ),
    Control(
        "ISO/IEC 4922-2",
        "secure multi-party computation by secret sharing",
        "scheme additive: who signed which set and which opening, in rounds/",
        "other schemes are outside that standard",
    ),
)

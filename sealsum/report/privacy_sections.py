"""Sections of a report on privacy: the claim, what it rests on, the budgets, and attacks that tested it."""

from __future__ import annotations

from itertools import accumulate

from sealsum.report.charts import Burn, Measured, attacks_against_bounds, burn_down
from sealsum.report.document import Block, Bullets, Paragraph, Quote, Section, Table
from sealsum.report.facts import Facts, Json


def privacy_claim(facts: Facts) -> Section:
    """The sentence, word for word, and each item that a claim must state."""
    claim = facts.claim
    blocks: list[Block] = [Quote(claim["statement"])]
    if claim["delta"] is not None:
        blocks += [
            Table("What the claim states (dp/claim.json)", ("item", "stated"), _stated(claim), (26, 74)),
            Paragraph(
                "ε is computed from each silo's own signed ledger of what ran, not from what was planned; "
                "the verifier "
                "computes bounds of its own on both sides of it.",
                quiet=True,
            ),
        ]
    return Section("The privacy claim", tuple(blocks))


def _stated(claim: Json) -> tuple[tuple[str, str], ...]:
    mechanism = claim["mechanism"]
    shares, most = mechanism["noise_shares"], claim["records_per_unit"]
    noise = f"{mechanism['noise_multiplier']} times the clip norm"
    empirical = claim["empirical"]
    tested = "none in this pack"
    if empirical is not None:
        tested = (
            f"ε at least {empirical['epsilon_at_least']} where {empirical['epsilon_claimed_there']} is "
            "claimed: "
            f"{empirical['attack']}, {empirical['protection']} (self-reported, {empirical['entry']})"
        )
    return (
        ("unit of privacy", f"one {claim['unit']}, of at most {most} record{'' if most == 1 else 's'}"),
        ("adjacency", str(claim["adjacency"]).replace("_", " or ")),
        ("δ", f"{claim['delta']}: {claim['delta_judged']}"),
        ("mechanism", f"{mechanism['name']}, {mechanism['steps_per_round']} step(s) a round"),
        ("clip norm", mechanism["clip_l2"]),
        ("noise σ", noise if shares is None else f"{noise}, in shares of {shares} honest silos"),
        ("sampling rate q", mechanism["sample_rate"]),
        ("sampling assumed", claim["sampling"]["assumed"]),
        ("sampling implemented", claim["sampling"]["implemented"]),
        ("accountant", f"{claim['accountant']['name']}: {claim['accountant']['version']}"),
        ("scope of composition", claim["composition"]),
        ("when it resets", claim["resets"]),
        ("model and trust", f"{claim['model']['kind']}: {claim['model']['trust']}"),
        ("random numbers", claim["randomness"]),
        ("secure aggregation", f"{claim['scheme']}: withstands {claim['secagg']['withstands']}"),
        ("checks on updates", claim["secagg"]["validity"]),
        ("empirical lower bound", tested),
    )


def budgets(facts: Facts) -> Section:
    """ε of each silo against the caps that it signed, as a drawing and as numbers."""
    rows = facts.claim["silos"]
    replays = facts.replay["silos"]
    if not rows:
        return Section("Budgets", (Paragraph("No silo has reserved any budget for this job."),))
    burns = tuple(_burn(silo, replays[silo]) for silo in sorted(rows))
    table = Table(
        "What each silo's ledger says (dp/ledger, dp/accountant-replay.json)",
        ("silo", "rounds", "steps", "ε", "ε by RDP", "ε_fallback", "μ-GDP", "cap a job", "cap ever"),
        tuple(
            (
                silo,
                str(row["rounds"]),
                str(row["steps"]),
                row["epsilon"],
                row["epsilon_rdp"],
                row["epsilon_fallback"],
                row["mu"] or "–",
                replays[silo]["caps"]["epsilon"]["job"],
                replays[silo]["caps"]["epsilon"]["lifetime"],
            )
            for silo, row in sorted(rows.items())
        ),
        (20, 10, 9, 11, 11, 12, 10, 9, 9),
        frozenset(range(1, 9)),
    )
    note = Paragraph(
        "ε_fallback is what the silo's own noise gives should the secure sum fail. μ-GDP is stated where "
        "it is exact: "
        "without sampling.",
        quiet=True,
    )
    return Section("Budgets: ε per silo against its caps", (burn_down(burns), table, note))


def _burn(silo: str, replay: Json) -> Burn:
    blocks = replay["blocks"]
    reserved = accumulate(block["last_round"] - block["first_round"] + 1 for block in blocks)
    points = tuple(
        (rounds, float(block["after"]["epsilon"])) for rounds, block in zip(reserved, blocks, strict=True)
    )
    return Burn(silo, points, float(replay["caps"]["epsilon"]["job"]))


def attack_results(facts: Facts) -> Section:
    """What attacks came to where the pack was made, if it says so."""
    title = "Attacks against the bounds"
    if not facts.attacks:
        return Section(
            title,
            (
                Paragraph(
                    "No attack results are included. sealsum audit attack runs them on any installation, "
                    "without data; "
                    "sealsum audit export --attack-results includes what it wrote."
                ),
            ),
        )
    measured = tuple(
        Measured(
            f"{row['name']}: {row['protection']}",
            row["figures"]["epsilon_at_least"],
            row["figures"]["epsilon_claimed"],
            row["protected"],
        )
        for row in facts.attacks
        if {"epsilon_at_least", "epsilon_claimed"} <= row["figures"].keys()
    )
    table = Table(
        "All attacks, self-reported by whoever exported the pack (tests/attack.json)",
        ("attack", "protection", "measured", "bound or claim", "verdict"),
        tuple(
            (row["name"], row["protection"], row["measured"], row["expected"], row["verdict"])
            for row in facts.attacks
        ),
        (20, 24, 24, 20, 12),
    )
    told = Bullets(
        (
            "consistent: the protection was on and the attack failed, as is claimed. VIOLATED: it did not "
            "fail.",
            "succeeds: the protection was off and the attack succeeded, so that its failure elsewhere "
            "means something.",
        )
    )
    charts = (attacks_against_bounds(measured),) if measured else ()
    return Section(title, (*charts, table, told))

"""Sections at the end of a report: software, limits, control mapping, checking by hand, signatures."""

from __future__ import annotations

from sealsum.report.controls import CONTROLS
from sealsum.report.document import Block, Bullets, Code, Paragraph, Section, Table
from sealsum.report.facts import Facts, Json


def software(facts: Facts) -> Section:
    """Versions of what made the pack."""
    versions = facts.versions
    packages = sorted(versions["packages"].items())
    listed = ", ".join(f"{name} {version}" for name, version in packages)
    return Section(
        "Software",
        (
            Paragraph(
                f"Of {versions['scope']}: Python {versions['python']}, {versions['system']}"
                f"{_cryptography(versions)}. {listed}."
            ),
            Paragraph(
                f"software/sbom.cdx.json lists all {facts.components} installed components (CycloneDX "
                "1.6), as they "
                "describe themselves. What ran at the other parties is not in this pack.",
                quiet=True,
            ),
        ),
    )


def _cryptography(versions: Json) -> str:
    """Which OpenSSL signed, in which mode, and the image it ran in; nothing of packs that do not say so."""
    found = versions.get("openssl")
    if found is None:
        return ""
    image = versions.get("image")
    mode = "in FIPS mode" if found["fips"] else "not in FIPS mode"
    return f", {found['version']}, {mode}" + ("" if image is None else f", image {image}")


def known_limits(facts: Facts) -> Section:
    """What the claim's own limits are, and what no pack can show."""
    return Section(
        "Limits",
        (
            Bullets(
                (
                    *facts.claim["limits"],
                    "A pack cannot show that a silo trained on the data it names, that its agent added "
                    "the noise its "
                    "ledger records, or what a party did outside the protocol.",
                    "The tail of a log or ledger behind the last entry that somebody else witnessed can "
                    "have been cut "
                    "off by its owner.",
                )
            ),
        ),
    )


def control_mapping() -> Section:
    """Which text each part of the pack is mapped to; what remains for people."""
    return Section(
        "Control mapping",
        (
            Paragraph(
                "Mapped to, and no more: whether a rule is met is for those who answer for it. None of "
                "these bodies has "
                "reviewed Sealsum.",
            ),
            Table(
                "Sources, and the parts of this pack that are mapped to them",
                ("source", "asks for", "mapped to it", "left to people"),
                tuple((c.source, c.asks, c.mapped, c.left) for c in CONTROLS),
                (22, 26, 28, 24),
            ),
        ),
    )


def verify_command(pin: str) -> Code:
    """What to type."""
    return Code(f"pip install sealsum-verify\nsealsum-verify evidence.zip {pin}")


def by_hand(pin: str) -> Section:
    """How to check single things without our programs."""
    steps: tuple[Block, ...] = (
        Paragraph(
            "The verifier needs Python and the library cryptography only, and is short enough to read "
            "first. Single "
            "things can be checked with programs that everybody has:"
        ),
        Code(
            "unzip -q evidence.zip -d pack && cd pack\n"
            "sha256sum dp/claim.json        # compare with manifest.json\n"
            "grep -c reserve dp/ledger/*.jsonl"
        ),
        Paragraph(
            "VERIFY.md in the pack says what each check means; docs/auditing.md of Sealsum checks a pack "
            "by hand, with "
            f"openssl and sha256sum, signature by signature. Pin the federation's root of trust: {pin}."
        ),
    )
    return Section("How to verify by hand", steps)


def signatures(facts: Facts, signer: str, created_at: str) -> Section:
    """Who signed what."""
    servers = [m.id for m in facts.members if m.role in ("aggregator", "share_server")]
    rows = [
        ("charter", "the federation's officers", "who/charter.json"),
        ("job", facts.job_sender, "job/job.json"),
        ("offers, results", "the aggregator", "rounds/"),
        ("updates, refusals", "each silo for itself", "rounds/"),
        ("sets of silos summed", "all who sum, see Rounds", "rounds/"),
        ("logs", ", ".join(servers), "log/"),
        ("ledgers", "each silo for itself", "dp/ledger/"),
        ("this collection", f"{signer}, {created_at}", "manifest.sig"),
    ]
    if facts.approvals:
        rows.insert(2, ("approvals", "people at the silos", "silos/"))
    table = Table("Who signed what", ("what", "by", "where"), tuple(rows), (30, 42, 28))
    return Section("Signatures", (table,))

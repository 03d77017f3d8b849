"""Drawings of a report: ε against its caps, attacks against their bounds. Knows no pack and no writer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sealsum.report.document import Chart, Dot, Ink, Label, Stroke

_WIDTH = 720.0
_COLUMNS = 3
_PANEL, _PANEL_HEIGHT, _SPACE = 212.0, 132.0, 42.0


@dataclass(frozen=True)
class Burn:
    """What one silo has reserved: points of (rounds reserved, ε so far), and the cap on ε."""

    silo: str
    points: tuple[tuple[int, float], ...]
    cap: float


@dataclass(frozen=True)
class Measured:
    """What one attack proved at least, and what is claimed of the mechanism it attacked."""

    name: str
    at_least: float
    claimed: float
    protected: bool


def burn_down(silos: Sequence[Burn]) -> Chart:
    """Small multiples: what is left of each silo's cap on a job after each block of rounds."""
    rows = math.ceil(len(silos) / _COLUMNS)
    marks = [mark for place, silo in enumerate(silos) for mark in _panel(silo, place)]
    told = "; ".join(f"{s.silo}: {s.cap - s.points[-1][1]:.3g} of {s.cap:g} left" for s in silos)
    return Chart(
        _WIDTH,
        rows * (_PANEL_HEIGHT + _SPACE),
        tuple(marks),
        f"Privacy budget left of the cap on a job, for each silo. {told}.",
        "ε left of the cap that each silo signed into its ledger for one job (dashed: nothing left), "
        "after each "
        "block of rounds it reserved. A reservation never comes back.",
    )


def _panel(silo: Burn, place: int) -> list[Stroke | Label | Dot]:
    left = (place % _COLUMNS) * (_PANEL + _SPACE)
    top = (place // _COLUMNS) * (_PANEL_HEIGHT + _SPACE) + 22
    bottom, right = top + _PANEL_HEIGHT - 26, left + _PANEL
    rounds = max(1, silo.points[-1][0])

    def at(number: float, used: float) -> tuple[float, float]:
        share = min(1.0, max(0.0, used / silo.cap))
        return left + 4 + (right - left - 8) * number / rounds, top + (bottom - top) * share

    steps: list[tuple[float, float]] = [at(0, 0.0)]
    for (number, used), (before, _) in zip(silo.points, ((0, 0.0), *silo.points), strict=False):
        steps += [at(before, used), at(number, used)]
    used = silo.points[-1][1]
    ink: Ink = "bad" if used > silo.cap else "accent"
    return [
        Label(left, top - 8, silo.silo, "ink", size=12, bold=True),
        Label(right, top - 8, f"{silo.cap - used:.3g} of {silo.cap:g} left", anchor="end"),
        Stroke(((left, top), (right, top)), "rule"),
        Stroke(((left, bottom), (right, bottom)), "bad", dashed=True),
        Stroke(tuple(steps), ink, 2.0),
        Dot(*at(rounds, used), 3.5, ink),
        Label(left, bottom + 15, "0"),
        Label(right, bottom + 15, f"{rounds} round{'' if rounds == 1 else 's'} reserved", anchor="end"),
    ]


def attacks_against_bounds(attacks: Sequence[Measured]) -> Chart:
    """One line an attack: what it proved at least, against what is claimed."""
    scale = max(max(a.claimed, min(a.at_least, 3 * a.claimed)) for a in attacks) * 1.1
    start, end, row = 300.0, _WIDTH - 20, 30.0

    def x(value: float) -> float:
        return start + (end - start) * min(1.0, value / scale)

    marks: list[Stroke | Dot | Label] = []
    for place, attack in enumerate(attacks):
        y = 24 + place * row
        ink: Ink = "quiet" if not attack.protected else "bad" if attack.at_least > attack.claimed else "good"
        marks += [
            Label(0, y + 4, attack.name if len(attack.name) <= 46 else attack.name[:45] + "…", "ink"),
            Stroke(((start, y), (end, y)), "rule"),
            Stroke(((x(attack.claimed), y - 9), (x(attack.claimed), y + 9)), "accent", 2.5),
            Dot(x(attack.at_least), y, 4.5, ink),
        ]
    bottom = 24 + len(attacks) * row
    marks += [
        Label(start, bottom, "ε = 0"),
        Label(end, bottom, f"ε = {scale:.3g} or more", anchor="end"),
    ]
    told = "; ".join(f"{a.name}: at least {a.at_least:.3g}, claimed {a.claimed:.3g}" for a in attacks)
    return Chart(
        _WIDTH,
        bottom + 8,
        tuple(marks),
        f"What attacks proved ε to be at least, against the claim. {told}.",
        "Bar: the ε claimed of the mechanism that was attacked. Dot: what the attack proved at least; "
        "green within the "
        "claim, red beyond it, gray where the protection was switched off, where it must come out beyond.",
    )

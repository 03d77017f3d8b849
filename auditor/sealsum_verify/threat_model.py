"""What the charter's threat model assumes and asks for, read from its text without a YAML library.

A reader of all of YAML is larger than this program. This one knows maps by indentation, lists of words,
words in quotes and flow collections on one line; whatever else a text holds is a fault, never a guess.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sealsum_verify.encoding import Fault, demand

ENTRY = "policy/policy.yaml"
_PIECE = r"[A-Za-z0-9_./+][A-Za-z0-9_./+-]*"
_WORD = rf"{_PIECE}(?:[: ]{_PIECE})*"
_QUOTED = r"\"[^\"\\]*\"|'[^']*'"
_LINE = re.compile(rf"( *)(?:([A-Za-z_0-9]+):|-)(?: +({_WORD}|{_QUOTED}|\{{.*\}}|\[.*\]))? *")
_ITEMS = "-"
_COMMENT = re.compile(r"(^|(?<= ))#.*")


@dataclass(frozen=True)
class Approvals:
    """How many people of a silo approve a job, in which roles, and whether a rule may do so instead."""

    n: int
    roles: tuple[str, ...]
    automatic: bool

    def together(self, own: Approvals, entry: str) -> Approvals:
        """The stricter of both: most approvers, in roles that both name, a rule only where both allow it."""
        roles = tuple(role for role in self.roles if role in own.roles)
        both = Approvals(max(self.n, own.n), roles, self.automatic and own.automatic)
        demand(len(roles) >= both.n, entry, "it asks for approvals that cannot be had with the federation's")
        return both


def hostile(text: str) -> tuple[bool, int]:
    """Whether the aggregator may be malicious, and how many silos may tell it what they know.

    What the text leaves out has the strict value, as on the platform: malicious, and two silos.
    """
    tree = _tree(text)
    behaviour = _find(tree, "malicious", "spec", "assume", "aggregator", "behaviour")
    known = behaviour in ("trusted", "honest_but_curious", "malicious")
    demand(known, ENTRY, "assume.aggregator.behaviour is none that this program knows")
    told = _find(tree, "2", "spec", "assume", "aggregator", "colludes_with_silos")
    among = _find(tree, "2", "spec", "assume", "silos", "max_colluding")
    whole = all(re.fullmatch("[0-9]{1,4}", number) for number in (told, among))
    demand(whole, ENTRY, "assume: numbers of colluding silos are not plain whole numbers")
    return behaviour == "malicious", max(int(told), int(among))


def least_silos(text: str) -> int:
    """``limits.min_silos_open``: the fewest silos of a sum."""
    least = _find(_tree(text), "5", "spec", "limits", "min_silos_open")
    demand(re.fullmatch("[0-9]{1,4}", least) is not None, ENTRY, "min_silos_open is no plain whole number")
    return int(least)


def witnesses_needed(text: str) -> int:
    """How many silos must have cosigned a checkpoint: as the text says, or more than half of the minimum to
    open, and more than collude."""
    tree = _tree(text)
    least = _find(tree, "5", "spec", "limits", "min_silos_open")
    asked = _find(tree, "", "spec", "evidence", "witnesses_min")
    whole = all(re.fullmatch("[0-9]{1,4}", number) for number in (least, asked or "1"))
    demand(whole, ENTRY, "numbers of silos to open and to witness are not plain whole numbers")
    return int(asked) if asked else max(int(least) // 2, hostile(text)[1]) + 1


def approvals_asked(text: str, entry: str = ENTRY) -> Approvals:
    """What ``require.approvals`` says; left out: one person, a data steward or a DPO, and no rule."""
    try:
        return _approvals(_tree(text))
    except Fault as fault:
        raise Fault(entry, fault.sentence) from fault


def _approvals(tree: Any) -> Approvals:
    path = ("spec", "require", "approvals")
    n, automatic = _find(tree, "1", *path, "n"), _find(tree, "refused", *path, "automatic")
    roles = _field(tree, ["data_steward", "dpo"], *path, "roles")
    if isinstance(roles, dict) and set(roles) == {_ITEMS}:
        roles = roles[_ITEMS]
    words = isinstance(roles, list) and all(isinstance(role, str) for role in roles)
    known = n in ("1", "2", "3") and automatic in ("refused", "allowed") and words and bool(roles)
    demand(known, ENTRY, "require.approvals is in a form that this program does not read")
    return Approvals(int(n), tuple(roles), automatic == "allowed")


def _find(tree: Any, strict: str, *path: str) -> str:
    word = _field(tree, strict, *path)
    demand(isinstance(word, str), ENTRY, f"{'.'.join(path)}: expected one word")
    return str(word)


def _field(tree: Any, strict: Any, *path: str) -> Any:
    for step in path:
        demand(isinstance(tree, dict), ENTRY, f"{'.'.join(path)}: expected fields, got a word")
        if step not in tree:
            return strict
        tree = tree[step]
    return tree


def _tree(text: str) -> Any:
    """Maps of maps and words; a list of words under a key is a map of ``_ITEMS`` alone."""
    tree: dict[str, Any] = {}
    above = [(-1, tree)]
    for number, raw in enumerate(text.split("\n"), 1):
        # Tabs, and breaks that only YAML knows as such, are not printable: a comment could hide a line.
        where = f"line {number}: in a form that this program does not read"
        demand(raw.isprintable(), ENTRY, where)
        line = _COMMENT.sub("", raw)
        if not line.strip():
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise Fault(ENTRY, where)
        indent, key, value = len(found[1]), found[2], found[3]
        while above[-1][0] >= indent + (key is None):  # items may stand as far left as their key
            above.pop()
        parent = above[-1][1]
        if key is None:  # an item of a list
            if value is None or value[0] in "[{":
                raise Fault(ENTRY, where)
            parent.setdefault(_ITEMS, []).append(_value(value, where) if value[0] in "\"'" else value)
            continue
        demand(key not in parent, ENTRY, f"line {number}: {key} is given twice")
        parent[key] = {} if value is None else _value(value, where)
        if value is None:
            above.append((indent, parent[key]))
    return tree


def _value(text: str, where: str) -> Any:
    """A word, bare or in quotes, or a flow collection: JSON, once its words are in quotes."""
    if re.fullmatch(_QUOTED, text):
        return text[1:-1]
    if '"' in text:
        raise Fault(ENTRY, where)
    try:
        return json.loads(re.sub(_WORD, lambda word: f'"{word[0]}"', text), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise Fault(ENTRY, where) from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)

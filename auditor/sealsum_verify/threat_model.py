"""Whom the charter's threat model assumes hostile, read from its text without a YAML library.

A reader of all of YAML is larger than this program. This one knows maps by indentation, lists of words,
words in quotes and flow collections on one line; whatever else a text holds is a fault, never a guess.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sealsum_verify.encoding import Fault, demand

ENTRY = "policy/policy.yaml"
_PIECE = r"[A-Za-z0-9_./+][A-Za-z0-9_./+-]*"
_WORD = rf"{_PIECE}(?:[: ]{_PIECE})*"
_QUOTED = r"\"[^\"\\]*\"|'[^']*'"
_LINE = re.compile(rf"( *)(?:([A-Za-z_0-9]+):|-)(?: +({_WORD}|{_QUOTED}|\{{.*\}}|\[.*\]))? *")
_COMMENT = re.compile(r"(^|(?<= ))#.*")


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


def witnesses_needed(text: str) -> int:
    """How many silos must have cosigned a checkpoint: as the text says, or more than half of the minimum to
    open, and more than collude."""
    tree = _tree(text)
    least = _find(tree, "5", "spec", "limits", "min_silos_open")
    asked = _find(tree, "", "spec", "evidence", "witnesses_min")
    whole = all(re.fullmatch("[0-9]{1,4}", number) for number in (least, asked or "1"))
    demand(whole, ENTRY, "numbers of silos to open and to witness are not plain whole numbers")
    return int(asked) if asked else max(int(least) // 2, hostile(text)[1]) + 1


def approvals_needed(text: str) -> tuple[int, bool]:
    """In how many roles people at a silo must have approved a job, and whether a rule may in their place."""
    tree = _tree(text)
    asked = _find(tree, "1", "spec", "require", "approvals", "n")
    automatic = _find(tree, "refused", "spec", "require", "approvals", "automatic")
    known = re.fullmatch("[1-9]", asked) is not None and automatic in ("refused", "allowed")
    demand(known, ENTRY, "require.approvals is none that this program knows")
    return int(asked), automatic == "allowed"


def _find(tree: Any, strict: str, *path: str) -> str:
    for step in path:
        demand(isinstance(tree, dict), ENTRY, f"{'.'.join(path)}: expected fields, got a word")
        if step not in tree:
            return strict
        tree = tree[step]
    demand(isinstance(tree, str), ENTRY, f"{'.'.join(path)}: expected one word")
    return str(tree)


def _tree(text: str) -> Any:
    """Maps of maps and words; lists under a key are checked for their form and left out."""
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
        while above[-1][0] >= indent:
            above.pop()
        parent = above[-1][1]
        if key is None:  # an item of a list
            demand(value is not None and value[0] not in "[{", ENTRY, where)
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

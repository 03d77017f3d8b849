"""YAML as plain text in a tree: no tags, aliases, second spellings or duplicate keys; bounded.

Every scalar stays text. Knows nothing of threat models.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node

from policies.findings import Finding

MAX_BYTES = 64 << 10
MAX_DEPTH = 12


def _refused(problem: str, mark: Any) -> ConstructorError:
    """PyYAML's own error type, so that one place reports unreadable text."""
    return ConstructorError(None, None, problem, mark)


class _TextLoader(yaml.SafeLoader):
    """PyYAML's safe loader, minus everything that makes one text mean two things."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML reads this class attribute

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.duplicates: list[Finding] = []
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # untyped in the stub
        if isinstance(event, yaml.AliasEvent):
            raise _refused("expected no aliases (*name): write it out", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _refused("expected no tags (!name)", event.start_mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refused(f"expected at most {MAX_DEPTH} levels", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused("expected a plain word as a key", key.start_mark)
            if key.value in seen:
                line = key.start_mark.line + 1
                self.duplicates.append(
                    Finding(
                        "yaml.duplicate_key",
                        f"line {line}: the key {key.value} is given twice, readers differ on which counts",
                        "each key once",
                        f"{key.value} again",
                        "remove one of the two lines",
                    )
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_yaml(text: str) -> tuple[object, list[Finding]]:
    """The tree of one YAML document, every scalar as text, and what is wrong with its form.

    When the form is beyond reading, the tree is ``None``.
    """
    size = len(text.encode())
    if size > MAX_BYTES:
        return None, [
            Finding(
                "yaml.too_large",
                "this is a page that people read and sign",
                f"at most {MAX_BYTES} bytes",
                f"{size} bytes",
                "shorten its comments",
            )
        ]
    try:
        loader = _TextLoader(text)
        try:
            tree = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not readable"
        return None, [
            Finding(
                "yaml.unreadable",
                "this is not one plain YAML document",
                "one YAML document without tags, aliases or deep nesting",
                f"{where}{problem}",
                "correct that line",
            )
        ]
    return tree, loader.duplicates

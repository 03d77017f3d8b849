"""YAML of settings that an administrator wrote: plain, bounded, each key once. Knows no setting.

Aliases are refused, as nine lines of them can stand for a billion values; tags, as they name Python types.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node

MAX_DEPTH = 32


def parse_settings(raw: bytes) -> Any:
    """The tree of one YAML document.

    Raises:
        yaml.YAMLError: it is none, or has a value that is none of its kind, such as 2024-13-45.
    """
    try:
        return yaml.load(raw, _SettingsLoader)  # noqa: S506 - a SafeLoader that takes less
    except (ValueError, OverflowError) as error:
        raise yaml.YAMLError(f"a number or date that is none: {str(error)[:80]}") from error


def _refused(problem: str, mark: Any) -> ConstructorError:
    """PyYAML's own error type, so that one place reports unreadable text."""
    return ConstructorError(None, None, problem, mark)


class _SettingsLoader(yaml.SafeLoader):
    """SafeLoader less aliases, tags, deep nesting, and a key given twice: the second would silently win."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # untyped in the stub
        if isinstance(event, yaml.AliasEvent):
            raise _refused("expected no aliases (*name): write it out", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _refused("expected no tags (!name)", event.start_mark)
        if self._depth == MAX_DEPTH:
            told = f"expected at most {MAX_DEPTH} levels"
            raise _refused(told, event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise _refused(f"duplicate key {key!r}", node.start_mark)
        return super().construct_mapping(node, deep)

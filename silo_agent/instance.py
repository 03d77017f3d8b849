"""This start of the agent, named at random: two agents of one silo are told apart."""

from __future__ import annotations

import os
from pathlib import Path

from privacy.errors import MalformedMessage
from privacy.instance import Instance, parse_instance
from silo_agent.durable import write_durably


def begin_instance(state_dir: Path) -> Instance:
    """A new name for this start, on disk before it is used, with the one it follows."""
    path = state_dir / "instance"
    new = os.urandom(16).hex()
    try:
        previous = parse_instance(path.read_text("ascii").strip()).id
    except (FileNotFoundError, UnicodeDecodeError, MalformedMessage):
        previous = None  # the first start, or a file that says nothing: then the other one must be gone first
    write_durably(path, new.encode())
    return Instance(new, previous)

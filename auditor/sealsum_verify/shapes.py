"""What each document must look like before a check may read it: the matcher of ``shapes.txt``.

A field's shape is an atom (a pattern for a whole string), ``int``, ``object``, the name of another shape,
``[shape]`` for a list, ``{shape}`` for a map by name, or ``shape?`` where null is allowed. A document has
exactly the fields of its line, unless the line ends in ``*``; a field whose name ends in ``~`` may be absent.
"""

from __future__ import annotations

import re
from importlib.resources import files

from sealsum_verify.encoding import demand

ATOMS = {
    "hex": re.compile(r"[0-9a-f]{64}"),
    "name": re.compile(r"[a-z0-9][a-z0-9._-]{0,62}"),
    "real": re.compile(r"[0-9]{1,25}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,2})?"),
    "cost": re.compile(r"[0-9]{1,20}\.[0-9]{4}"),
    "signed": re.compile(r"-?[0-9]{1,25}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,2})?"),
    "session": re.compile(r"[0-9a-f]{32}"),
    "signature": re.compile(r"[0-9a-f]{128}"),
    "instant": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"),
    "text": re.compile(r"(?s).*"),
}
_TABLE = re.sub(r"#.*\n", "", files("sealsum_verify").joinpath("shapes.txt").read_text("utf-8"))
SHAPES = dict(line.split(" = ") for line in re.sub(r"\n +", " ", _TABLE).splitlines())
"""By name, from ``shapes.txt``: the documented layout as a table."""


def check_shape(value: object, shape: str, entry: str, path: str = "document") -> None:
    """Raise a ``Fault`` on ``entry`` that names the first field which does not fit ``shape``."""
    expected = f"{path}: expected {shape}"
    if shape.endswith("?"):
        if value is not None:
            check_shape(value, shape[:-1], entry, path)
    elif shape.startswith("["):
        demand(isinstance(value, list), entry, expected)
        for index, item in enumerate(value if isinstance(value, list) else ()):
            check_shape(item, shape[1:-1], entry, f"{path}[{index}]")
    elif shape.startswith("{"):
        demand(isinstance(value, dict), entry, expected)
        for key, item in (value if isinstance(value, dict) else {}).items():
            check_shape(key, "name", entry, f"a name in {path}")
            check_shape(item, shape[1:-1], entry, f"{path}.{key}")
    elif shape in ATOMS:
        demand(isinstance(value, str) and ATOMS[shape].fullmatch(value) is not None, entry, expected)
    elif shape in ("int", "object"):
        demand(type(value) is (int if shape == "int" else dict), entry, expected)  # True is no int here
    else:
        exact = not SHAPES[shape].endswith("*")
        demand(isinstance(value, dict), entry, expected)
        record = value if isinstance(value, dict) else {}
        named = [pair.split(":") for pair in SHAPES[shape].removesuffix(" *").split()]
        fields = {
            name.rstrip("~"): inner
            for name, inner in named
            if not name.endswith("~") or name.rstrip("~") in record
        }
        demand(set(fields) <= set(record), entry, f"{expected} with {', '.join(sorted(fields))}")
        demand(not exact or len(record) == len(fields), entry, f"{expected} and no other fields")
        for field, inner in fields.items():
            check_shape(record[field], inner, entry, f"{path}.{field}")

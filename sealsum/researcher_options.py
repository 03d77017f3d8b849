"""The options by which a researcher's commands find her state and the aggregator."""

from __future__ import annotations

from pathlib import Path

import click

STATE = click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The researcher's own directory, as enrolment left it.",
)
AGGREGATOR = click.option(
    "--aggregator",
    "url",
    metavar="URL",
    help="https:// address; needed until a charter is held that names it.",
)
PROXY = click.option("--proxy", metavar="URL", help="Proxy to dial through; else HTTPS_PROXY.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")

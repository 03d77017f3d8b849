"""``python -m sealsum``: the same command as the installed script."""

from __future__ import annotations

from sealsum.cli import main

main()

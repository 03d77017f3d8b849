"""Revisions of a server's database, one file each, applied at start (``aggregator/migrating.py``)."""

"""Offline verifier of Sealsum evidence packs: imports nothing of the platform whose evidence it judges."""

__version__ = "0.1.0"

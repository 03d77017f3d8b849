"""Logs that cannot be rewritten unseen: Merkle trees, records with fields to redact, signed checkpoints.

Pure: no disk, no network, no clock. Who keeps a log, witnesses or reads one builds on this package.
"""

"""Upkeep of a running process: probes, metrics, and its certificate's renewal. Knows no rounds."""

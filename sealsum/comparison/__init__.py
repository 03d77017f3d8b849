"""Algorithms side by side on one partition, in memory, against pooled and local training."""

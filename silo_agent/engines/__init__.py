"""Sums of clipped gradients: several ways to compute the same numbers, each the oracle of the others."""

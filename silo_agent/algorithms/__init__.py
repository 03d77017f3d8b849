"""What a silo computes in a round, by the name that its job gives: one module an algorithm."""

"""A federation in one process, for benchmarks, attacks and tuning: the real arithmetic, without a network."""

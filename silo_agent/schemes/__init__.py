"""A silo's half of each secure-aggregation scheme in one round: a module a scheme."""

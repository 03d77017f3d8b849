"""How each secure-aggregation scheme carries a round, from the offer to the one opened sum."""

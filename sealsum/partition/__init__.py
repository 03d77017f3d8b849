"""Splits of public or made-up records among simulated silos, for teaching and for trying algorithms."""

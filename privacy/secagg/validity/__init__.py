"""Validity on shares: share servers check an exact L2 bound of an update that none of them can see."""

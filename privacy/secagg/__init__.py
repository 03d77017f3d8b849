"""Secure aggregation: a silo half and a sum half for each protocol, and what each withstands."""

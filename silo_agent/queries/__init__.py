"""A silo's half of a query: the sum of its patients' bounded answers, before noise."""

"""Differential privacy: what happened (events) and, apart from it, what it costs (accountants)."""

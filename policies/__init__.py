"""May this happen? Pure judgement, used by both sides of the wire."""

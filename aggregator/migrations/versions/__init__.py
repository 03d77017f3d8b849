"""The revisions; a released one never changes. The rule for new ones is in docs/adr/0032."""

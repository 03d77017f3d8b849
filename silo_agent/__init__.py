"""The agent an institution installs: it holds the data, the keys and the privacy budget."""

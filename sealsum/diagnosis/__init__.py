"""Whether silos' data differ so much that plain averaging suffers, and what to do about it."""

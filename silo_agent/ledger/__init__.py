"""What a silo has spent of its patients' privacy: an append-only journal, and the rules of spending."""

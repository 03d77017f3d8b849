"""Who decides at a silo whether a job may touch its data, and how its agent checks that each round."""

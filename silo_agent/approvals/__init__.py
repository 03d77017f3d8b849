"""Who decides at a silo whether a job may touch its data, and how the agent proves it to itself each round."""

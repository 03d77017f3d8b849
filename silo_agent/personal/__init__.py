"""Models that are a silo's own: made from a job's model and its own patients, and never sent anywhere."""

"""From a hospital's files to records in the public form that a job's schema describes."""

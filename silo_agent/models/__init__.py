"""Model adapters: what a job may train is code that the silo already has, never code that was sent."""

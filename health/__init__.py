"""Health and metrics of a running process, on a listener of its own. Knows neither rounds nor keys."""

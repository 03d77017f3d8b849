"""People at servers: logging in by OpenID Connect, keeping what came of it, calling with it."""

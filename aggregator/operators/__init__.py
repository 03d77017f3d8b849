"""People at a server: operators known by certificate, by their issuer's access token or by an API token."""

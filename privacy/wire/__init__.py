"""Messages between parties: frozen models, one codec, one signed envelope, one table of order."""

"""Arithmetic, cryptography, accounting and messages: values in, values out, no I/O."""

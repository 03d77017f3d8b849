"""The face of Sealsum: command line, Python SDK and demonstration."""

__version__ = "0.1.0"

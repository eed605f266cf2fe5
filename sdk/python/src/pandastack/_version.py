"""The version of this package; `pyproject.toml` says the same, and a test holds them together."""

__version__ = "0.11.0"

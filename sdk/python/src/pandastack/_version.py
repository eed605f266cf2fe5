"""The version of this package; `pyproject.toml` says the same, and a test holds them together."""

__version__ = "1.0.0"

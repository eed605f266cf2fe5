# Generated from ../_async/__init__.py by scripts/generate_sync.py. Do not edit.
"""The sync client, generated from the async one: see ``scripts/generate_sync.py``."""

"""The async client. The sync one is generated from this package: see ``scripts/generate_sync.py``."""

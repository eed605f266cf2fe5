"""Snapshots, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._sync.resources import Snapshots as SnapshotsAPI

__all__ = ["SnapshotsAPI"]

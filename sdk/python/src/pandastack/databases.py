"""Managed databases, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._sync.databases import Databases as DatabasesAPI

__all__ = ["DatabasesAPI"]

"""Apps, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._sync.apps import Apps as AppsAPI

__all__ = ["AppsAPI"]

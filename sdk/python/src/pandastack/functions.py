"""Functions, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._sync.functions import Functions as FunctionsAPI

__all__ = ["FunctionsAPI"]

"""Volumes, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._sync.resources import Volumes as VolumesAPI

__all__ = ["VolumesAPI"]

"""Schedules of functions, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._sync.functions import Schedules as SchedulesAPI

__all__ = ["SchedulesAPI"]

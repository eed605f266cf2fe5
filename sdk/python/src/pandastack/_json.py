"""Decoded JSON, as the kind of value that is expected of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast


def as_object(value: Any) -> dict[str, Any]:
    """An object; empty when it is something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list; empty when it is something else."""
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []

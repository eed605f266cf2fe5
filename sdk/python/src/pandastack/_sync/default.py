# Generated from ../_async/default.py by scripts/generate_sync.py. Do not edit.
"""The client that is used when none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .._runtime_sync import scope

if TYPE_CHECKING:
    from .client import PandaStack

_default: Optional[tuple[object, PandaStack]] = None


def get_default_client() -> PandaStack:
    """The default client: the one that was set, or one made from the environment."""
    global _default
    here = scope()
    if _default is None or _default[0] is not here:
        from .client import PandaStack

        _default = (here, PandaStack())
    return _default[1]


def set_default_client(client: Optional[PandaStack]) -> None:
    """Sets the default client, or forgets it."""
    global _default
    _default = None if client is None else (scope(), client)

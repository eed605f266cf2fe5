"""The client that is used when none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .._runtime_async import scope

if TYPE_CHECKING:
    from .client import AsyncPandaStack

_default: Optional[tuple[object, AsyncPandaStack]] = None


def get_default_async_client() -> AsyncPandaStack:
    """The default client: the one that was set, or one made from the environment."""
    global _default
    here = scope()
    if _default is None or _default[0] is not here:
        from .client import AsyncPandaStack

        _default = (here, AsyncPandaStack())
    return _default[1]


def set_default_async_client(client: Optional[AsyncPandaStack]) -> None:
    """Sets the default client, or forgets it."""
    global _default
    _default = None if client is None else (scope(), client)

"""API keys of the default client, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from typing import List, Optional

from ._sync.default import get_default_client
from ._sync.resources import Tokens as TokensAPI
from .models import Token

__all__ = ["Token", "TokensAPI", "create", "list", "revoke"]


def list() -> List[Token]:  # noqa: A001 - the name published clients know
    """All keys, without the keys themselves."""
    return get_default_client().tokens.list()


def create(name: str, expires_in_days: Optional[float] = None) -> Token:
    """Makes a key. ``token`` is shown this once."""
    return get_default_client().tokens.create(name, expires_in_days)


def revoke(prefix: str) -> None:
    """Makes a key useless."""
    get_default_client().tokens.revoke(prefix)

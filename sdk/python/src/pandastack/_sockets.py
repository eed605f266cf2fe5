"""What goes wrong with WebSockets, in this package's own words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import websockets.exceptions

from ._json import as_object
from .exceptions import APITimeoutError, ConnectionError, PandastackError, error_from_answer

SOCKET_ERRORS = (websockets.exceptions.WebSocketException, OSError, TimeoutError, asyncio.TimeoutError)

#: What a tunnel says in text when one side writes no more.
TUNNEL_END = '{"eof": true}'
#: Most bytes of one message of a tunnel.
TUNNEL_PIECE = 32 * 1024


def is_tunnel_end(message: str) -> bool:
    """Whether a message says that the far side writes no more."""
    try:
        return as_object(json.loads(message)).get("eof") is True
    except ValueError:
        return False


def socket_error(error: BaseException) -> PandastackError:
    """The exception for a WebSocket that could not be opened or written to."""
    if isinstance(error, websockets.exceptions.InvalidStatus):
        raw = error.response.body
        text = bytes(raw).decode("utf-8", "replace") if raw else ""
        body: Any
        try:
            body = json.loads(text)
        except ValueError:
            body = text
        return error_from_answer(error.response.status_code, body, request_id=error.response.headers.get("x-request-id"))
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return APITimeoutError(f"the server did not answer in time: {error}")
    return ConnectionError(f"the connection failed: {error}")

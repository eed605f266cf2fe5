"""What goes wrong with WebSockets, in this package's own words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import websockets.exceptions

from .exceptions import APITimeoutError, ConnectionError, PandastackError, error_from_answer

SOCKET_ERRORS = (websockets.exceptions.WebSocketException, OSError, TimeoutError, asyncio.TimeoutError)


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

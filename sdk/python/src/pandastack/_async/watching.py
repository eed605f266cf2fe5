"""Changes of files, while they happen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from types import TracebackType
from typing import Callable, Optional

import httpx

from .._cleanup import set_aside
from .._sse import ServerSentEvent
from ..exceptions import ConnectionError, error_from_stream
from ..models import FileChange
from .transport import AsyncTransport


class AsyncWatch:
    """Changes, one after the other: see :meth:`AsyncFilesystem.watch`."""

    def __init__(self, transport: AsyncTransport, opening: Callable[[], Awaitable[httpx.Response]], path: str) -> None:
        self._transport = transport
        self._opening = opening
        self._watched = path
        self._events: Optional[AsyncGenerator[ServerSentEvent, None]] = None
        self._closed = False

    async def open(self) -> AsyncWatch:
        """Begins to watch, unless it has begun. When this returns, every later change is seen."""
        if self._events is None and not self._closed:
            self._events = self._transport.events(await self._opening())
            try:
                await self._next("ready")
            except BaseException:
                await self.close()
                raise
        return self

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> FileChange:
        await self.open()
        event = await self._next("change", "overflow")
        if event is None:
            raise StopAsyncIteration
        if event.event == "overflow":
            return FileChange(self._watched, "overflow")
        data = event.json()
        to = data.get("to")
        return FileChange(
            str(data.get("path", "")), str(data.get("kind", "")), bool(data.get("is_dir")), None if to is None else str(to)
        )

    async def close(self) -> None:
        """Ends watching."""
        self._closed = True
        if self._events is not None:
            await self._events.aclose()

    async def __aenter__(self) -> AsyncWatch:
        return await self.open()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the watching was not ended", failure)

    async def _next(self, *wanted: str) -> Optional[ServerSentEvent]:
        """The next event of these; ``None`` when it was closed."""
        while not self._closed and self._events is not None:
            try:
                event = await self._events.__anext__()
            except StopAsyncIteration:
                break
            if event.event == "error":
                await self.close()
                raise error_from_stream(event.json(), "watching ended with an error")
            if event.event in wanted:
                return event
        if self._closed:
            return None
        await self.close()
        raise ConnectionError("watching ended: the connection or the sandbox went away")

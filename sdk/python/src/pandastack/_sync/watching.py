# Generated from ../_async/watching.py by scripts/generate_sync.py. Do not edit.
"""Changes of files, while they happen."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Callable, Optional

import httpx

from .._cleanup import set_aside
from .._sse import ServerSentEvent
from ..exceptions import ConnectionError, error_from_stream
from ..models import FileChange
from .transport import Transport


class Watch:
    """Changes, one after the other: see :meth:`Filesystem.watch`."""

    def __init__(self, transport: Transport, opening: Callable[[], httpx.Response], path: str) -> None:
        self._transport = transport
        self._opening = opening
        self._watched = path
        self._events: Optional[Generator[ServerSentEvent, None, None]] = None
        self._closed = False

    def open(self) -> Watch:
        """Begins to watch, unless it has begun. When this returns, every later change is seen."""
        if self._events is None and not self._closed:
            self._events = self._transport.events(self._opening())
            try:
                self._next("ready")
            except BaseException:
                self.close()
                raise
        return self

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> FileChange:
        self.open()
        event = self._next("change", "overflow")
        if event is None:
            raise StopIteration
        if event.event == "overflow":
            return FileChange(self._watched, "overflow")
        data = event.json()
        to = data.get("to")
        return FileChange(
            str(data.get("path", "")), str(data.get("kind", "")), bool(data.get("is_dir")), None if to is None else str(to)
        )

    def close(self) -> None:
        """Ends watching."""
        self._closed = True
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Watch:
        return self.open()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the watching was not ended", failure)

    def _next(self, *wanted: str) -> Optional[ServerSentEvent]:
        """The next event of these; ``None`` when it was closed."""
        while not self._closed and self._events is not None:
            try:
                event = self._events.__next__()
            except StopIteration:
                break
            if event.event == "error":
                self.close()
                raise error_from_stream(event.json(), "watching ended with an error")
            if event.event in wanted:
                return event
        if self._closed:
            return None
        self.close()
        raise ConnectionError("watching ended: the connection or the sandbox went away")

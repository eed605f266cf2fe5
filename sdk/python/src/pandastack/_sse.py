"""Event streams: bytes in, events out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._json import as_object


@dataclass(frozen=True)
class ServerSentEvent:
    """One event of a stream."""

    event: str
    data: str

    def json(self) -> dict[str, Any]:
        """Its data, when that is a JSON object; else an empty one."""
        try:
            return as_object(json.loads(self.data))
        except ValueError:
            return {}


class EventDecoder:
    """Puts events together from pieces of a stream, however they are cut.

    Lines end at LF, as the server writes them (or CR LF); characters that other programs also take for line ends do not count.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """The events that end within this piece."""
        if b"\n" not in piece:
            self._rest += piece
            return
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for raw in lines:
            line = raw[:-1] if raw.endswith(b"\r") else raw
            if not line:
                if self._data:
                    yield ServerSentEvent(self._event, "\n".join(self._data))
                self._event, self._data = "", []
                continue
            name, _, value = line.partition(b":")
            text = (value[1:] if value.startswith(b" ") else value).decode("utf-8", "replace")
            if name == b"event":
                self._event = text
            elif name == b"data":
                self._data.append(text)

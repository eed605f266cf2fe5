# Generated from ../_async/terminal.py by scripts/generate_sync.py. Do not edit.
"""Terminals."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Optional, Union

from .._cleanup import set_aside
from .._json import as_object
from .._runtime_sync import Socket
from ..exceptions import TerminalError
from .transport import Transport


class Terminal:
    """A login shell in a terminal of its own.

    with sandbox.terminal(rows=24, cols=80) as terminal:
        terminal.write("ls\\nexit\\n")
        for piece in terminal:
            sys.stdout.buffer.write(piece)
        print(terminal.exit_code)
    """

    def __init__(
        self, transport: Transport, path: str, *, rows: int, cols: int, cwd: Optional[str], term: Optional[str]
    ) -> None:
        self._transport = transport
        self._path = path
        self._params: dict[str, Any] = {"rows": rows, "cols": cols}
        if cwd is not None:
            self._params["cwd"] = cwd
        if term is not None:
            self._params["term"] = term
        self._socket: Optional[Socket] = None
        self._ended = False
        #: Set once the shell has ended.
        self.exit_code: Optional[int] = None

    def open(self) -> Terminal:
        """Connects, unless it is connected."""
        self._connected()
        return self

    def write(self, data: Union[str, bytes]) -> None:
        """Types."""
        socket = self._connected()
        socket.send(data.encode() if isinstance(data, str) else data)

    def resize(self, rows: int, cols: int) -> None:
        """Says how large the window is now."""
        socket = self._connected()
        socket.send(json.dumps({"resize": {"rows": rows, "cols": cols}}))

    def read(self) -> Optional[bytes]:
        """The next output; ``None`` once the shell has ended."""
        while not self._ended:
            socket = self._connected()
            message = socket.receive()
            if message is None:
                self._ended = True
            elif isinstance(message, bytes):
                return message
            else:
                self._frame(message)
        return None

    def __iter__(self) -> Terminal:
        return self

    def __next__(self) -> bytes:
        piece = self.read()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Hangs up; the shell ends."""
        self._ended = True
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Terminal:
        return self.open()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the terminal was not closed", failure)

    def _connected(self) -> Socket:
        if self._socket is None:
            self._socket = self._transport.socket(self._path, self._params)
        return self._socket

    def _frame(self, text: str) -> None:
        try:
            frame = as_object(json.loads(text))
        except ValueError:
            return
        if "exit" in frame:
            self.exit_code = int(frame["exit"])
            self._ended = True
        elif "error" in frame:
            self._ended = True
            raise TerminalError(str(frame["error"]))

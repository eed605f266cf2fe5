"""Terminals."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Optional, Union

from .._cleanup import set_aside
from .._json import as_object
from .._runtime_async import Socket
from ..exceptions import TerminalError
from .transport import AsyncTransport


class AsyncTerminal:
    """A login shell in a terminal of its own.

    async with sandbox.terminal(rows=24, cols=80) as terminal:
        await terminal.write("ls\\nexit\\n")
        async for piece in terminal:
            sys.stdout.buffer.write(piece)
        print(terminal.exit_code)
    """

    def __init__(
        self, transport: AsyncTransport, path: str, *, rows: int, cols: int, cwd: Optional[str], term: Optional[str]
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

    async def open(self) -> AsyncTerminal:
        """Connects, unless it is connected."""
        await self._connected()
        return self

    async def write(self, data: Union[str, bytes]) -> None:
        """Types."""
        socket = await self._connected()
        await socket.send(data.encode() if isinstance(data, str) else data)

    async def resize(self, rows: int, cols: int) -> None:
        """Says how large the window is now."""
        socket = await self._connected()
        await socket.send(json.dumps({"resize": {"rows": rows, "cols": cols}}))

    async def read(self) -> Optional[bytes]:
        """The next output; ``None`` once the shell has ended."""
        while not self._ended:
            socket = await self._connected()
            message = await socket.receive()
            if message is None:
                self._ended = True
            elif isinstance(message, bytes):
                return message
            else:
                await self._frame(message)
        return None

    def __aiter__(self) -> AsyncTerminal:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.read()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """Hangs up; the shell ends."""
        self._ended = True
        if self._socket is not None:
            await self._socket.close()

    async def __aenter__(self) -> AsyncTerminal:
        return await self.open()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the terminal was not closed", failure)

    async def _connected(self) -> Socket:
        if self._socket is None:
            self._socket = await self._transport.socket(self._path, self._params)
        return self._socket

    async def _frame(self, text: str) -> None:
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

"""What the async client does with tasks, and the sync one with threads. Both modules have the same names."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket as socket_module
import struct
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, BinaryIO, Callable, Optional, TypeVar, Union

import websockets.asyncio.client
import websockets.exceptions

from ._sockets import SOCKET_ERRORS, TUNNEL_END, TUNNEL_PIECE, is_tunnel_end, socket_error
from .exceptions import PandastackError

T = TypeVar("T")
R = TypeVar("R")

Lock = asyncio.Lock

#: What ``cancel=`` takes.
CancelEvent = asyncio.Event

#: What can be written as the contents of a file, besides text and bytes.
Pieces = Union[AsyncIterable[bytes], Iterable[bytes]]


def scope() -> object:
    """What a default client belongs to: here the event loop, which its connections belong to as well."""
    return asyncio.get_running_loop()


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


async def wait_cancelled(cancel: Optional[CancelEvent], seconds: float) -> bool:
    """Waits for so long, or until ``cancel`` is set; says whether it was."""
    if cancel is None:
        await asyncio.sleep(seconds)
        return False
    try:
        await asyncio.wait_for(cancel.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True


async def call(callback: Optional[Callable[[T], object]], value: T) -> None:
    """Calls back, if there is a callback; waits if it is itself async."""
    if callback is not None:
        result = callback(value)
        if inspect.isawaitable(result):
            await result


async def call_function(function: Callable[..., object], *arguments: object) -> Any:
    """Calls a function of the user's, async or not, and gives what it returns."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


async def in_thread(function: Callable[[], R]) -> R:
    """Does something with local files that may take a while, without holding up other tasks."""
    return await asyncio.get_running_loop().run_in_executor(None, function)


async def each(items: Sequence[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """Does the work for all items, some at once. The first that fails ends it."""
    room = asyncio.Semaphore(max(1, at_once))

    async def one(item: T) -> R:
        async with room:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def pieces(given: Pieces) -> AsyncIterator[bytes]:
    """The pieces of what the user gave, one after the other."""
    if isinstance(given, AsyncIterable):
        async for piece in given:
            yield piece
    else:
        for piece in given:
            yield piece


async def pieces_of(file: BinaryIO, most: Optional[int], size: int) -> AsyncIterator[bytes]:
    """A file's contents from where it stands on, piece by piece; never more than ``most`` bytes."""
    left = most
    while left is None or left > 0:
        wanted = size if left is None else min(size, left)
        piece = await in_thread(functools.partial(file.read, wanted))
        if not piece:
            return
        if left is not None:
            left -= len(piece)
        yield piece


class Socket:
    """A WebSocket."""

    def __init__(self, connection: websockets.asyncio.client.ClientConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str, headers: dict[str, str], timeout: float) -> Socket:
        """Connects."""
        try:
            return cls(
                await websockets.asyncio.client.connect(
                    url, additional_headers=headers, open_timeout=timeout, max_size=None, compression=None
                )
            )
        except SOCKET_ERRORS as error:
            raise socket_error(error) from error

    async def send(self, message: Union[str, bytes]) -> None:
        """Sends a message."""
        try:
            await self._connection.send(message)
        except SOCKET_ERRORS as error:
            raise socket_error(error) from error

    async def receive(self) -> Optional[Union[str, bytes]]:
        """The next message; ``None`` when there will be none."""
        try:
            return await self._connection.recv()
        except websockets.exceptions.ConnectionClosed:
            return None

    async def close(self) -> None:
        """Hangs up."""
        await self._connection.close()


class Listener:
    """A local port; each connection to it is carried over a WebSocket of its own."""

    def __init__(self, connect: Callable[[], Awaitable[Socket]], failed: Callable[[PandastackError], None]) -> None:
        self._connect = connect
        self._failed = failed
        self._server: Optional[asyncio.Server] = None
        self._carried: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listens; gives the port, which is a free one for 0."""
        self._server = await asyncio.start_server(self._accept, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Listens no more, and ends the connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        carried = list(self._carried)
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await self._connect()
        except PandastackError as error:
            self._failed(error)
            _reset(writer)
            return
        outward = asyncio.ensure_future(_outward(reader, socket))
        whole = False
        try:
            whole = await _inward(socket, writer)
        except OSError:
            whole = False  # The local program went away.
        finally:
            outward.cancel()
            # The local program must not take half an answer for a whole one.
            if whole:
                writer.close()
            else:
                _reset(writer)
            await asyncio.gather(outward, socket.close(), return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection in a way that the other side takes for a failure."""
    connection: Optional[socket_module.socket] = writer.get_extra_info("socket")
    if connection is not None:
        try:
            connection.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # It is at its end already.
    writer.transport.abort()


async def _outward(reader: asyncio.StreamReader, socket: Socket) -> None:
    """What the local program writes, until it writes no more."""
    try:
        while piece := await reader.read(TUNNEL_PIECE):
            await socket.send(piece)
        await socket.send(TUNNEL_END)
    except (OSError, PandastackError):
        await socket.close()


async def _inward(socket: Socket, writer: asyncio.StreamWriter) -> bool:
    """What the guest writes, until the WebSocket is closed. Says whether all of it came."""
    whole = False
    while (message := await socket.receive()) is not None:
        if isinstance(message, bytes):
            writer.write(message)
            await writer.drain()
        elif is_tunnel_end(message):
            whole = True
            writer.write_eof()
    return whole

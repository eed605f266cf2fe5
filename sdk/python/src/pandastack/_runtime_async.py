"""What the async client does with tasks, and the sync one with threads. Both modules have the same names."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, BinaryIO, Callable, Optional, TypeVar, Union

import websockets.asyncio.client
import websockets.exceptions

from ._sockets import SOCKET_ERRORS, socket_error

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
    """Calls back, if somebody wants it; waits if the callback is itself async."""
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

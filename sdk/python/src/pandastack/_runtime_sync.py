"""What the sync client does with threads, and the async one with tasks. Both modules have the same names."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, BinaryIO, Callable, Optional, Protocol, TypeVar, Union

import websockets.exceptions
import websockets.sync.client
import websockets.sync.connection

from ._sockets import SOCKET_ERRORS, socket_error

T = TypeVar("T")
R = TypeVar("R")

Lock = threading.Lock


class CancelEvent(Protocol):
    """What ``cancel=`` takes: :class:`threading.Event`, or anything else with these two methods."""

    def is_set(self) -> bool:
        """Whether it was set."""
        ...

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until it is set, for so long at most; says whether it was."""
        ...


#: What can be written as the contents of a file, besides text and bytes.
Pieces = Iterable[bytes]


def scope() -> object:
    """What a default client belongs to: here the program."""
    return None


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def wait_cancelled(cancel: Optional[CancelEvent], seconds: float) -> bool:
    """Waits for so long, or until ``cancel`` is set; says whether it was."""
    if cancel is None:
        time.sleep(seconds)
        return False
    return bool(cancel.wait(seconds))


def call(callback: Optional[Callable[[T], object]], value: T) -> None:
    """Calls back, if somebody wants it."""
    if callback is not None:
        callback(value)


def call_function(function: Callable[..., object], *arguments: object) -> Any:
    """Calls a function of the user's and gives what it returns."""
    return function(*arguments)


def in_thread(function: Callable[[], R]) -> R:
    """Does something with local files that may take a while."""
    return function()


def each(items: Sequence[T], work: Callable[[T], R], at_once: int) -> list[R]:
    """Does the work for all items, some at once. The first that fails ends it: what has not begun is not begun."""
    if at_once <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(at_once, len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def pieces(given: Pieces) -> Iterator[bytes]:
    """The pieces of what the user gave, one after the other."""
    yield from given


def pieces_of(file: BinaryIO, most: Optional[int], size: int) -> Iterator[bytes]:
    """A file's contents from where it stands on, piece by piece; never more than ``most`` bytes."""
    left = most
    while left is None or left > 0:
        piece = file.read(size if left is None else min(size, left))
        if not piece:
            return
        if left is not None:
            left -= len(piece)
        yield piece


class Socket:
    """A WebSocket."""

    def __init__(self, stack: ExitStack, connection: websockets.sync.connection.Connection) -> None:
        self._stack = stack
        self._connection = connection

    @classmethod
    def open(cls, url: str, headers: dict[str, str], timeout: float) -> Socket:
        """Connects."""
        stack = ExitStack()
        try:
            connection = stack.enter_context(
                websockets.sync.client.connect(
                    url, additional_headers=headers, open_timeout=timeout, max_size=None, compression=None
                )
            )
            return cls(stack, connection)
        except SOCKET_ERRORS as error:
            raise socket_error(error) from error

    def send(self, message: Union[str, bytes]) -> None:
        """Sends a message."""
        try:
            self._connection.send(message)
        except SOCKET_ERRORS as error:
            raise socket_error(error) from error

    def receive(self) -> Optional[Union[str, bytes]]:
        """The next message; ``None`` when there will be none."""
        try:
            return self._connection.recv()
        except websockets.exceptions.ConnectionClosed:
            return None

    def close(self) -> None:
        """Hangs up."""
        self._stack.close()

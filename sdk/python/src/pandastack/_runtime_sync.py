"""What the sync client does with threads, and the async one with tasks. Both modules have the same names."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, BinaryIO, Callable, Optional, Protocol, TypeVar, Union

import websockets.exceptions
import websockets.sync.client
import websockets.sync.connection

from ._sockets import SOCKET_ERRORS, TUNNEL_END, TUNNEL_PIECE, is_tunnel_end, socket_error
from .exceptions import PandastackError

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
    """Calls back, if there is a callback."""
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


class Listener:
    """A local port; each connection to it is carried over a WebSocket of its own."""

    def __init__(self, connect: Callable[[], Socket], failed: Callable[[PandastackError], None]) -> None:
        self._connect = connect
        self._failed = failed
        self._listening: Optional[socket.socket] = None
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: set[Union[socket.socket, Socket]] = set()
        self._lock = threading.Lock()

    def open(self, host: str, port: int) -> int:
        """Listens; gives the port, which is a free one for 0."""
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._listening = socket.create_server((host, port), family=family)
        self._listening.settimeout(_TUNNEL_LOOK)
        self._start(self._accept, self._listening)
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        """Listens no more, and ends the connections."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        self._closing.set()
        _shut(listening)
        with self._lock:
            left, threads = list(self._open), list(self._threads)
        for one in left:
            _hang_up(one)
        for thread in threads:
            thread.join(_TUNNEL_JOIN)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True, name="pandastack-tunnel")
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()]
            thread.start()
            self._threads.append(thread)

    def _accept(self, listening: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = listening.accept()
            except socket.timeout:
                continue  # Not every system wakes this thread when the socket is closed.
            except OSError:
                return
            self._start(self._carry, connection)

    def _carry(self, connection: socket.socket) -> None:
        far: Optional[Socket] = None
        whole = False
        try:
            far = self._connect()
            with self._lock:
                self._open |= {connection, far}
            if self._closing.is_set():
                return
            self._start(_outward, connection, far)
            whole = _inward(far, connection)
        except PandastackError as error:
            self._failed(error)
        except OSError:
            pass  # The local program went away.
        finally:
            with self._lock:
                self._open -= {connection} if far is None else {connection, far}
            if not whole:
                # A reset: the local program must not take half an answer for a whole one.
                _reset(connection)
            _hang_up(connection)
            if far is not None:
                _hang_up(far)


def _outward(connection: socket.socket, far: Socket) -> None:
    """What the local program writes, until it writes no more."""
    try:
        while piece := connection.recv(TUNNEL_PIECE):
            far.send(piece)
        far.send(TUNNEL_END)
    except (OSError, PandastackError):
        far.close()


def _inward(far: Socket, connection: socket.socket) -> bool:
    """What the guest writes, until the WebSocket is closed. Says whether all of it came."""
    whole = False
    while (message := far.receive()) is not None:
        if isinstance(message, bytes):
            connection.sendall(message)
        elif is_tunnel_end(message):
            whole = True
            connection.shutdown(socket.SHUT_WR)
    return whole


def _shut(one: socket.socket) -> None:
    """Ends a connection, which wakes the thread that waits for it."""
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It is at its end already.
    one.close()


def _reset(one: socket.socket) -> None:
    """Ends a connection in a way that the other side takes for a failure."""
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RD)  # Wakes the thread that reads from it.
    except OSError:
        pass  # It is at its end already.
    one.close()


def _hang_up(one: Union[socket.socket, Socket]) -> None:
    if isinstance(one, Socket):
        one.close()
    else:
        _shut(one)


#: How long the threads of a tunnel are waited for, and how often one looks whether the tunnel was closed.
_TUNNEL_JOIN = 5.0
_TUNNEL_LOOK = 0.5

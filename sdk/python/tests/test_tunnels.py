"""Tunnels, against a WebSocket server that does what the product's does: bytes both ways, and both ends of a connection."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from http import HTTPStatus
from typing import Any, Callable, Iterator

import pytest
from conftest import settle
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from pandastack import AsyncPandaStack, PandaStack, Sandbox
from pandastack._async.sandbox import AsyncSandbox

Carry = Callable[[ServerConnection], None]


class Far:
    """Where tunnels lead to."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.said: list[str] = []
        self.got = b""
        self.carry: Carry = self.echo
        self._server: Server = serve(self._handle, "127.0.0.1", 0, process_request=self._request)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"

    def _request(self, connection: ServerConnection, request: Any) -> Any:
        self.paths.append(request.path)
        if "/ports/81/" in request.path:
            answer = connection.respond(HTTPStatus.BAD_GATEWAY, json.dumps({"error": "nothing listens on port 81"}))
            return answer
        return None

    def _handle(self, connection: ServerConnection) -> None:
        try:
            self.carry(connection)
        except ConnectionClosed:
            pass

    def take(self, connection: ServerConnection) -> None:
        """Everything that is sent, until the end is said."""
        while True:
            message = connection.recv()
            if isinstance(message, str):
                self.said.append(message)
                return
            self.got += message

    def echo(self, connection: ServerConnection) -> None:
        self.take(connection)
        for start in range(0, len(self.got), 10_000):
            connection.send(self.got[start : start + 10_000])
        connection.send('{"eof":true}')

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()


@pytest.fixture
def far() -> Iterator[Far]:
    one = Far()
    yield one
    one.close()


def talk(port: int, data: bytes) -> bytes:
    """What a program on this machine does: sends, says that this is all, reads to the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


@pytest.fixture(params=["sync", "async"])
def through(request: pytest.FixtureRequest, far: Far) -> Callable[..., Any]:
    """Opens a tunnel and does something with its local port; gives what came of it, and the tunnel."""

    async def run(port: int, work: Callable[[int], Any]) -> tuple[Any, Any]:
        is_sync = request.param == "sync"
        client: Any = (PandaStack if is_sync else AsyncPandaStack)("pds_test", far.url)
        box: Any = (Sandbox if is_sync else AsyncSandbox).from_dict({"id": "box"}, client)
        tunnel = box.tunnel(port)
        with pytest.raises(RuntimeError, match="not open"):
            _ = tunnel.local_port
        try:
            await settle(tunnel.open())
            return await asyncio.get_running_loop().run_in_executor(None, work, tunnel.local_port), tunnel
        finally:
            await settle(tunnel.close())
            await settle(client.close())

    return lambda port, work: asyncio.run(run(port, work))


def test_bytes_go_both_ways_and_each_side_has_an_end(far: Far, through: Callable[..., Any]) -> None:
    data = bytes(range(256)) * 4096
    answer, tunnel = through(80, lambda port: talk(port, data))
    assert answer == data and far.said == ['{"eof": true}'] and far.paths == ["/v1/sandboxes/box/ports/80/tcp"]
    assert tunnel.port == 80 and tunnel.error is None and "closed" in repr(tunnel)


def test_connections_do_not_wait_for_each_other(far: Far, through: Callable[..., Any]) -> None:
    together = threading.Barrier(3, timeout=10)

    def carry(connection: ServerConnection) -> None:
        together.wait()
        connection.send(b"hello")
        connection.send('{"eof":true}')
        far.take(connection)

    far.carry = carry

    def work(port: int) -> list[bytes]:
        got: list[bytes] = []
        threads = [threading.Thread(target=lambda: got.append(talk(port, b""))) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return got

    assert through(80, work)[0] == [b"hello"] * 3


def test_half_an_answer_is_not_taken_for_a_whole_one(far: Far, through: Callable[..., Any]) -> None:
    def carry(connection: ServerConnection) -> None:
        connection.send(b"half")
        connection.close(1011, "the connection in the sandbox was reset")

    far.carry = carry

    def work(port: int) -> bytes:
        # Reading first, so that what came before the reset is not lost with it.
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            assert connection.recv(4) == b"half"
            return connection.recv(1)

    with pytest.raises(ConnectionResetError):
        through(80, work)


def test_where_nothing_listens(far: Far, through: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    def work(port: int) -> None:
        with pytest.raises(ConnectionResetError):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                assert connection.recv(1) == b""
                raise ConnectionResetError  # An end without a reset says the same on some systems.

    _, tunnel = through(81, work)
    assert tunnel.error.status == 502 and "nothing listens" in tunnel.error.message
    assert "nothing listens" in caplog.text


def test_closing_ends_what_is_open(far: Far, through: Callable[..., Any]) -> None:
    def carry(connection: ServerConnection) -> None:
        connection.send(b"x")
        far.take(connection)

    far.carry = carry
    kept: list[socket.socket] = []

    def work(port: int) -> int:
        kept.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        assert kept[0].recv(1) == b"x"
        return port

    port, _ = through(80, work)
    with kept[0], pytest.raises(OSError):
        assert kept[0].recv(1) == b""
        raise OSError
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()

"""A small HTTP server that answers what a test tells it to, and clients of both kinds for it."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator, List, Optional
from urllib.parse import parse_qsl, urlsplit

import pytest

from pandastack import AsyncPandaStack, PandaStack


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    #: The query with what is repeated in it.
    pairs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Hang up after this much of the body, without an end.
    cut: bool = False

    def encoded(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Server:
    """Gives its answers one after the other, the last again and again; or asks `answer_with`."""

    def __init__(self, port: int = 0) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self.answer_with: Optional[Callable[[Request], Answer]] = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                server.handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, *arguments: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *arguments: object) -> None:
                """A client that hangs up is what some tests are about."""

        self._http = Quiet(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.port = int(self._http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        if handler.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(handler.rfile.readline(), 16):
                body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
        else:
            body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {key.lower(): value for key, value in handler.headers.items()}
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        request = Request(handler.command, parts.path, dict(pairs), headers, body, pairs)
        self.requests.append(request)
        if self.answer_with is not None:
            answer = self.answer_with(request)
        else:
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        content = answer.encoded()
        handler.send_response(answer.status)
        for key, value in {"X-Request-Id": "from-the-header", "Content-Type": "application/json", **answer.headers}.items():
            handler.send_header(key, value)
        if answer.cut:
            handler.send_header("Transfer-Encoding", "chunked")
        elif answer.status != 204:
            handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if answer.cut:
            handler.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
            handler.close_connection = True
        else:
            handler.wfile.write(content)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Driver:
    """A client of either kind whose calls are awaited where they need to be."""

    def __init__(self, flavour: str, server: Server) -> None:
        self.flavour = flavour
        self.server = server

    def run(self, work: Callable[[Any], Any], **options: Any) -> Any:
        """Gives `work` a client; its result, awaited or collected if need be."""
        return asyncio.run(self._run(work, options))

    async def _run(self, work: Callable[[Any], Any], options: dict[str, Any]) -> Any:
        options = {"api_key": "pds_test", "base_url": self.server.url, **options}
        client = PandaStack(**options) if self.flavour == "sync" else AsyncPandaStack(**options)
        try:
            result = await settle(work(client))
            if hasattr(result, "__anext__"):
                return [one async for one in result]
            return list(result) if hasattr(result, "__next__") else result
        finally:
            await settle(client.close())

    def sandbox(self, work: Callable[[Any], Any], **options: Any) -> Any:
        """Gives `work` a sandbox `box`; what it takes to get that does not count as a request."""

        async def inner(client: Any) -> Any:
            self.server.answers.insert(0, Answer(200, {"id": "box", "status": "running"}))
            sandbox = await settle(client.sandboxes.get("box"))
            self.server.requests.clear()
            result = await settle(work(sandbox))
            if hasattr(result, "__anext__"):
                return [one async for one in result]
            return list(result) if hasattr(result, "__next__") else result

        return self.run(inner, **options)


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture(params=["sync", "async"])
def driver(request: pytest.FixtureRequest, server: Server) -> Driver:
    return Driver(request.param, server)


class Waits(List[float]):
    """Times that were waited; `then` is called after each."""

    then: Optional[Callable[[], None]] = None

    def append(self, seconds: float) -> None:
        super().append(seconds)
        if self.then is not None:
            self.then()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """The time between attempts, written down instead of spent; the clock goes on by it."""
    spent = Waits()
    begun = __import__("time").monotonic

    async def sleep(seconds: float) -> None:
        spent.append(seconds)

    async def wait_cancelled(cancel: Any, seconds: float) -> bool:
        spent.append(seconds)
        return bool(cancel is not None and cancel.is_set())

    def now() -> float:
        return begun() + sum(spent)

    def sleep_sync(seconds: float) -> None:
        spent.append(seconds)

    def wait_cancelled_sync(cancel: Any, seconds: float) -> bool:
        spent.append(seconds)
        return bool(cancel is not None and cancel.is_set())

    class Clock:
        monotonic = staticmethod(now)

    from pandastack._async import transport as async_transport
    from pandastack._sync import transport as sync_transport

    for module, replacements in (
        (async_transport, {"sleep": sleep, "wait_cancelled": wait_cancelled}),
        (sync_transport, {"sleep": sleep_sync, "wait_cancelled": wait_cancelled_sync}),
    ):
        for name, replacement in replacements.items():
            monkeypatch.setattr(module, name, replacement)
        monkeypatch.setattr(module, "time", Clock)
    return spent

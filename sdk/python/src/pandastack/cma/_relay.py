"""Requests of a runner, taken out of its sandbox through a process's standard streams, and sent on with the worker's key."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Dict, List, Mapping, Optional, Set

import httpx

from .._async.processes import AsyncProcess
from .._async.sandbox import AsyncSandbox
from .._json import as_object
from ..exceptions import ConnectionError, ExecInterrupted, NotFoundError, ServerError
from ._rules import Rules
from ._work import KeyRejected, Lease, Unavailable

#: How the process is found again.
TAG = "claude-managed-agents"
#: Where the runner's log is, in the guest.
LOG = "/var/log/cma-runner.log"
#: Bytes in one line, before they are encoded.
PIECE = 24 * 1024
#: Characters that are sent to the guest at once.
BATCH = 128 * 1024
#: Bytes of a request that a guest may make.
BODY_MAX = 64 * 1024 * 1024
#: Requests of a guest at once; more are refused.
EXCHANGES_MAX = 64
#: After so many bytes the guest is told that they were read.
TAKEN_STEP = 32 * 1024
#: Longest line that a guest may send.
LINE_MAX = 256 * 1024
#: How long a server may be away, as when it is started again.
AWAY_TIMEOUT = 120.0
#: Waits for the first byte of an answer, and between two: streams of events have pings.
READ_TIMEOUT = 600.0

_PASSED_ON = ("content-type", "content-encoding", "retry-after", "request-id", "x-should-retry")


@dataclass(frozen=True)
class Outcome:
    """How a runner ended."""

    exit_code: int
    #: The end of its log.
    log: str = ""
    #: Whether it ended its item of work.
    stopped_work: bool = False


@dataclass
class _Exchange:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytearray = field(default_factory=bytearray)
    task: Optional[asyncio.Task[None]] = None


def guest_program() -> str:
    """What the guest's Python is given."""
    return files("pandastack.cma").joinpath("_guest.py").read_text(encoding="utf-8")


class Relay:
    """One runner, from its start to its end."""

    def __init__(
        self, process: AsyncProcess, http: httpx.AsyncClient, base_url: str, token: str, rules: Rules, lease: Lease
    ) -> None:
        self._process = process
        self._http = http
        self._base = base_url.rstrip("/")
        self._token = token
        self._rules = rules
        self._lease = lease
        self._exchanges: Dict[int, _Exchange] = {}
        self._outgoing: asyncio.Queue[Dict[str, Any]] = asyncio.Queue(64)
        self._line = 0
        self._read = 0
        self._told = 0
        self._stopped_work = False
        self._tasks: Set[asyncio.Task[None]] = set()

    @classmethod
    async def start(
        cls,
        sandbox: AsyncSandbox,
        setup: Mapping[str, Any],
        http: httpx.AsyncClient,
        base_url: str,
        token: str,
        rules: Rules,
        lease: Lease,
    ) -> Relay:
        """Starts the process. One that an earlier worker left is ended first."""
        for left in await sandbox.processes.list():
            if left.tag == TAG and left.running:
                await left.kill()
        process = await sandbox.processes.start(["python3", "-c", guest_program()], stdin=True, tag=TAG)
        relay = cls(process, http, base_url, token, rules, lease)
        await process.write(json.dumps(setup) + "\n")
        return relay

    async def run(self) -> Outcome:
        """Passes requests on until the runner has ended."""
        sender = asyncio.ensure_future(self._send())
        reader = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait({sender, reader}, return_when=asyncio.FIRST_COMPLETED)
            return await (reader if reader.done() else self._failed(sender))
        finally:
            left: List[asyncio.Future[Any]] = [sender, reader, *self._tasks]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def end(self) -> None:
        """Tells the runner to end; it does not end its item of work then."""
        await self._outgoing.put({"end": True})

    async def kill(self) -> None:
        """Ends everything at once."""
        await self._process.kill()

    async def _failed(self, sender: asyncio.Future[None]) -> Outcome:
        await sender
        raise ServerError("the guest takes no more input")

    async def _receive(self) -> Outcome:
        async for line in self._lines():
            frame = as_object(_decoded(line))
            if "exit" in frame:
                return Outcome(int(frame["exit"]), str(frame.get("log", "")), self._stopped_work)
            await self._take(frame)
            if self._read - self._told >= TAKEN_STEP:
                self._told = self._read
                await self._outgoing.put({"taken": self._told})
        process = await self._process.refresh()
        return Outcome(process.exit_code if process.exit_code is not None else 1, "", self._stopped_work)

    async def _lines(self) -> AsyncIterator[str]:
        """Lines of the process, whatever becomes of the connection meanwhile. They are ASCII, so that they can be counted."""
        rest = ""
        away_since: Optional[float] = None
        while True:
            try:
                async with self._process.stream(stdout_offset=self._read) as output:
                    async for piece in output:
                        away_since = None
                        if piece.stream != "stdout":
                            continue
                        self._read += len(piece.text)
                        *lines, rest = (rest + piece.text).split("\n")
                        if len(rest) > LINE_MAX:
                            raise ServerError("the guest sends a line that is too long")
                        for line in lines:
                            yield line
                    return
            except (ExecInterrupted, ConnectionError, ServerError) as error:
                now = time.monotonic()
                away_since = away_since or now
                if now - away_since > AWAY_TIMEOUT or "too long" in str(error):
                    raise
                await asyncio.sleep(1.0)

    async def _take(self, frame: Mapping[str, Any]) -> None:
        if "request" in frame:
            number = int(frame["request"])
            if len(self._exchanges) >= EXCHANGES_MAX:
                await self._outgoing.put({"failed": number, "why": "too many requests at once"})
                return
            headers = {name: str(value) for name, value in as_object(frame.get("headers")).items()}
            self._exchanges[number] = _Exchange(str(frame["method"]), str(frame["path"]), headers)
            return
        number = int(frame.get("body") or frame.get("sent") or frame.get("gone") or 0)
        exchange = self._exchanges.get(number)
        if exchange is None:
            return
        if "body" in frame:
            exchange.body += base64.b64decode(frame["data"])
            if len(exchange.body) > BODY_MAX:
                del self._exchanges[number]
                await self._outgoing.put({"failed": number, "why": "the request is too large"})
        elif "sent" in frame and exchange.task is None:
            exchange.task = asyncio.ensure_future(self._answer(number, exchange))
            self._tasks.add(exchange.task)
            exchange.task.add_done_callback(self._tasks.discard)
        elif "gone" in frame:
            self._exchanges.pop(number, None)
            if exchange.task is not None:
                exchange.task.cancel()

    async def _answer(self, number: int, exchange: _Exchange) -> None:
        try:
            await self._pass_on(number, exchange)
        except (httpx.HTTPError, httpx.InvalidURL, KeyRejected, Unavailable, ValueError) as error:
            await self._outgoing.put({"failed": number, "why": f"{type(error).__name__}"})
        finally:
            self._exchanges.pop(number, None)

    async def _pass_on(self, number: int, exchange: _Exchange) -> None:
        method, path, body = exchange.method, exchange.path, bytes(exchange.body)
        refusal = self._rules.refusal(method, path, body)
        if refusal is not None:
            error = {"type": "error", "error": {"type": "permission_error", "message": f"refused by the worker: {refusal}"}}
            await self._whole(number, 403, {"content-type": "application/json"}, json.dumps(error).encode())
            return
        url = httpx.URL(f"{self._base}{path}")
        if self._rules.is_heartbeat(method, path):
            response = await self._lease.beat(url.params.get("desired_ttl_seconds"))
            headers = {"content-type": response.headers.get("content-type", "application/json")}
            await self._whole(number, response.status_code, headers, response.content)
            return
        if body:
            # What was looked at is what is sent: JSON can be written so that two readers do not read the same.
            body = json.dumps(json.loads(body)).encode() if method == "POST" and path.startswith("/v1/sessions/") else body
        headers = {**exchange.headers, "authorization": f"Bearer {self._token}"}
        timeout = httpx.Timeout(30.0, read=READ_TIMEOUT)
        async with self._http.stream(method, url, headers=headers, content=body or None, timeout=timeout) as response:
            await self._outgoing.put(
                {"answer": number, "status": response.status_code, "headers": _passed_on(response.headers)}
            )
            # As they come: with a size, a stream of events would wait until it has so many bytes.
            async for piece in response.aiter_raw():
                await self._data(number, piece)
        if self._rules.is_stop(method, path) and response.status_code < 300:
            self._stopped_work = True
        await self._outgoing.put({"done": number})

    async def _whole(self, number: int, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self._outgoing.put({"answer": number, "status": status, "headers": dict(headers)})
        await self._data(number, body)
        await self._outgoing.put({"done": number})

    async def _data(self, number: int, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            piece = base64.b64encode(data[start : start + PIECE]).decode()
            await self._outgoing.put({"data_of": number, "data": piece})

    async def _send(self) -> None:
        while True:
            text = self._numbered(await self._outgoing.get())
            while len(text) < BATCH and not self._outgoing.empty():
                text += self._numbered(self._outgoing.get_nowait())
            await self._write(text)

    def _numbered(self, frame: Dict[str, Any]) -> str:
        self._line += 1
        return json.dumps({"line": self._line, **frame}) + "\n"

    async def _write(self, text: str) -> None:
        """Writes to the process, again while the server is away: the guest passes over what it has."""
        since = time.monotonic()
        while True:
            try:
                await self._process.write(text)
                return
            except NotFoundError:
                raise
            except (ConnectionError, ServerError):
                if time.monotonic() - since > AWAY_TIMEOUT:
                    raise
                await asyncio.sleep(1.0)


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _passed_on(headers: httpx.Headers) -> Dict[str, str]:
    names: List[str] = [name for name in headers if name in _PASSED_ON or name.startswith("anthropic-")]
    return {name: headers[name] for name in names}

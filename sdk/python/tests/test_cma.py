"""The worker for managed agents: its rules, its leases, and its relay with a process of this machine in the guest's place."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Dict, List, Optional

import httpx
import pytest

from pandastack import Output, cma
from pandastack.cma import CmaConfig
from pandastack.cma._relay import Outcome, Relay, guest_program
from pandastack.cma._rules import Rules
from pandastack.cma._work import Lease, Work, WorkQueue, backoff

RULES = Rules("env_1", "work_1", "session_1")
KEY = "sk-of-the-environment"


def results(*types: str) -> bytes:
    return json.dumps({"events": [{"type": one} for one in types]}).encode()


@pytest.mark.parametrize(
    "method, target, body",
    [
        ("POST", "/v1/environments/env_1/work/work_1/heartbeat?beta=true", b""),
        ("POST", "/v1/environments/env_1/work/work_1/stop?beta=true", b'{"force": true}'),
        ("GET", "/v1/environments/env_1/work/work_1", b""),
        ("GET", "/v1/sessions/session_1?beta=true", b""),
        ("GET", "/v1/sessions/session_1/events?limit=1000&order=asc", b""),
        ("GET", "/v1/sessions/session_1/events/stream", b""),
        ("POST", "/v1/sessions/session_1/events", results("user.tool_result", "user.custom_tool_result")),
        ("GET", "/v1/skills/skill_1/versions/1/content", b""),
        ("PATCH", "/v1/memory_stores/store_1/memories/one", b"{}"),
    ],
)
def test_what_a_runner_needs_is_allowed(method: str, target: str, body: bytes) -> None:
    assert RULES.refusal(method, target, body) is None


@pytest.mark.parametrize(
    "method, target, body",
    [
        ("GET", "/v1/environments/env_1/work/poll", b""),
        ("GET", "/v1/environments/env_1/work/work_1/poll", b""),
        ("POST", "/v1/environments/env_1/work/work_2/stop", b""),
        ("POST", "/v1/environments/env_2/work/work_1/stop", b""),
        ("GET", "/v1/sessions/session_2", b""),
        ("GET", "/v1/sessions", b""),
        ("POST", "/v1/sessions", b"{}"),
        ("DELETE", "/v1/sessions/session_1", b""),
        ("POST", "/v1/sessions/session_1/archive", b""),
        ("POST", "/v1/sessions/session_1/events", results("user.message")),
        ("POST", "/v1/sessions/session_1/events", results("user.tool_result", "user.tool_confirmation")),
        ("POST", "/v1/sessions/session_1/events", b'{"events": []}'),
        ("POST", "/v1/sessions/session_1/events", b"not JSON"),
        ("POST", "/v1/messages", b"{}"),
        ("GET", "/v1/models", b""),
        ("POST", "/v1/files", b""),
        ("DELETE", "/v1/memory_stores/store_1", b""),
        ("GET", "/v1/sessions/session_1/../session_2", b""),
        ("GET", "/v1/sessions/session_1/%2e%2e/session_2", b""),
        ("GET", "//elsewhere/v1/sessions/session_1", b""),
        ("GET", "http://elsewhere/v1/sessions/session_1", b""),
        ("GET", "/v1//sessions/session_1", b""),
        ("GET", "/", b""),
    ],
)
def test_everything_else_is_refused(method: str, target: str, body: bytes) -> None:
    assert RULES.refusal(method, target, body) is not None


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "ANTHROPIC_ENVIRONMENT_ID": "env_1",
        "ANTHROPIC_ENVIRONMENT_KEY": KEY,
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "PANDASTACK_API": "http://127.0.0.1:2",
        "PANDASTACK_API_KEY": "pds_1",
        "CMA_TEMPLATE": "mine",
        "CMA_ON_IDLE": "running",
        "CMA_OUTPUTS_DIR": str(tmp_path),
        "CMA_SANDBOX_TTL_SECONDS": "60",
        "CMA_MAX_SESSION_SECONDS": "61",
        "CMA_WORKER_ID": "w",
        "CMA_NETWORK": "all",
        "CMA_MAX_SESSIONS": "3",
    }.items():
        monkeypatch.setenv(name, value)
    config = CmaConfig.from_env(template="other", on_idle=None)
    assert (config.environment_id, config.environment_key, config.pandastack_token) == ("env_1", KEY, "pds_1")
    assert (config.pandastack_api, config.anthropic_api) == ("http://127.0.0.1:2", "http://127.0.0.1:1")
    assert (config.template, config.on_idle, config.outputs_dir) == ("other", "running", tmp_path)
    assert (config.sandbox_ttl_seconds, config.max_session_seconds, config.worker_id) == (60, 61, "w")
    assert (config.network, config.max_sessions) == ("all", 3)
    assert KEY not in repr(config) and "pds_1" not in repr(config)
    config.check()
    config.on_idle = "sleep"
    with pytest.raises(ValueError, match="hibernate, running, delete"):
        config.check()
    monkeypatch.setenv("CMA_MAX_SESSIONS", "many")
    with pytest.raises(ValueError, match="CMA_MAX_SESSIONS"):
        CmaConfig.from_env()
    monkeypatch.delenv("CMA_MAX_SESSIONS")
    monkeypatch.delenv("ANTHROPIC_ENVIRONMENT_KEY")
    assert CmaConfig.from_env().missing_required() == ["ANTHROPIC_ENVIRONMENT_KEY"]
    with pytest.raises(ValueError, match="ANTHROPIC_ENVIRONMENT_KEY"):
        cma.Worker(CmaConfig.from_env()).run()


def test_an_item_of_work_is_read() -> None:
    secret = base64.urlsafe_b64encode(b'{"sessions_token": "t"}').decode().rstrip("=")
    data = {"id": "work_1", "data": {"type": "session", "id": "session_1"}, "secret": secret}
    work = Work.from_dict(data)
    assert work is not None and (work.kind, work.session_id, work.token) == ("session", "session_1", "t")
    assert secret not in repr(work)
    for damaged in ("%", "e30", None, 7):
        other = Work.from_dict({**data, "secret": damaged})
        assert other is not None and other.token is None
    assert Work.from_dict(None) is None and Work.from_dict({"id": ""}) is None
    assert [backoff(n, lambda *_: 0.0) for n in (1, 2, 3, 9)] == [1, 2, 4, 60]


def queue_that(answers: Callable[[httpx.Request], httpx.Response]) -> WorkQueue:
    http = httpx.AsyncClient(transport=httpx.MockTransport(answers))
    return WorkQueue(http, CmaConfig("env_1", KEY, "pds_1", anthropic_api="http://queue"))


def test_a_lease_is_held_by_worker_and_runner_in_turn() -> None:
    last = ["NO_HEARTBEAT"]

    def answers(request: httpx.Request) -> httpx.Response:
        if request.url.params["expected_last_heartbeat"] != last[-1]:
            return httpx.Response(412, json={})
        last.append(str(len(last)))
        state = "stopping" if len(last) > 4 else "active"
        return httpx.Response(200, json={"last_heartbeat": last[-1], "ttl_seconds": 20, "state": state, "lease_extended": True})

    async def check() -> None:
        lease = Lease(queue_that(answers), Work("work_1", "session", "session_1"))
        keeper = asyncio.ensure_future(lease.keep())
        while len(last) < 2:
            await asyncio.sleep(0)
        keeper.cancel()
        for _ in range(3):
            assert (await lease.beat("30")).status_code == 200
        assert lease.ttl == 20 and lease.ended.is_set() and not lease.lost
        last.append("of another worker")
        assert (await lease.beat()).status_code == 412
        assert lease.lost

    asyncio.run(check())


def test_an_unknown_key_is_told_from_a_queue_that_is_away() -> None:
    statuses = iter([401, 503, 404, 204, 200])

    async def check() -> None:
        queue = queue_that(lambda _: httpx.Response(next(statuses), headers={"retry-after": "7"}, content=b"null"))
        with pytest.raises(cma.KeyRejected):
            await queue.poll()
        for _ in range(2):
            with pytest.raises(Exception, match="null") as caught:
                await queue.poll()
            assert getattr(caught.value, "after") == 7  # noqa: B009 - the type is private
        assert await queue.poll() is None and await queue.poll() is None

    asyncio.run(check())


class LocalProcess:
    """A process of this machine, with the methods of one in a guest that the relay uses."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.output = b""
        self.news = asyncio.Event()
        self.exit_code: Optional[int] = None
        self.lost: List[str] = []
        self.reader = asyncio.ensure_future(self.read())

    async def read(self) -> None:
        assert self.child.stdout is not None
        while piece := await self.child.stdout.read(65536):
            self.output += piece
            self.news.set()
        self.exit_code = await self.child.wait()
        self.news.set()

    async def write(self, data: str, *, close: bool = False) -> None:
        assert self.child.stdin is not None
        # As when an answer is lost: what was written is written again.
        for _ in range(2):
            self.child.stdin.write(data.encode())
        await self.child.stdin.drain()

    async def refresh(self) -> LocalProcess:
        return self

    def stream(self, *, stdout_offset: int = 0) -> LocalStream:
        return LocalStream(self, stdout_offset)


class LocalStream:
    def __init__(self, process: LocalProcess, offset: int) -> None:
        self.process, self.offset = process, offset

    async def __aenter__(self) -> LocalStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[Output]:
        process = self.process
        while True:
            process.news.clear()
            piece = process.output[self.offset :]
            self.offset += len(piece)
            if piece:
                yield Output("stdout", piece.decode())
            elif process.exit_code is not None:
                return
            else:
                await process.news.wait()


class Upstream(BaseHTTPRequestHandler):
    seen: List[Dict[str, Any]] = []
    heard = threading.Event()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
        self.send_response(200)
        self.send_header("content-type", "application/octet-stream")
        self.end_headers()
        if self.path.endswith("/stream"):
            self.wfile.write(b"first")
            # The rest comes when the first is there.
            self.heard.wait(60)
        self.heard.set()
        self.wfile.write(b"x" * (3 << 20) if self.path.startswith("/v1/skills") else b'{"ok": true}')

    do_GET = do_POST = respond


RUNNER = r"""
import os, sys, urllib.error, urllib.request
base = os.environ["ANTHROPIC_BASE_URL"]
assert os.environ["ANTHROPIC_ENVIRONMENT_KEY"] == "placeholder"
def ask(path, body=None):
    headers = {"authorization": "Bearer placeholder", "content-type": "application/json", "x-kept": "yes"}
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, data=body, headers=headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
with urllib.request.urlopen(base + "/v1/sessions/session_1/events/stream") as stream:
    assert stream.read(5) == b"first"
    assert ask("/v1/sessions/session_1")[0] == 200
    assert stream.read() == b'{"ok": true}'
assert len(ask("/v1/skills/s/versions/1/content")[1]) == 3 << 20
large = b'{"events": [{"type": "user.tool_result", "content": "%s"}]}' % (b"y" * (1 << 20))
assert ask("/v1/sessions/session_1/events", large) == (200, b'{"ok": true}')
twofold = b'{"events": [{"type": "user.message", "type": "user.tool_result"}]}'
assert ask("/v1/sessions/session_1/events", twofold)[0] == 200
refused = ask("/v1/messages", b"{}")
assert refused[0] == 403 and b"not part of this session" in refused[1], refused
print("the end of the log", flush=True)
sys.exit(3)
"""


def test_requests_leave_through_the_relay(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Upstream.seen.clear()
    Upstream.heard.clear()

    async def check() -> Outcome:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", guest_program(), stdin=pipe, stdout=pipe)
        process: Any = LocalProcess(child)
        log = tmp_path / "log"
        log.write_text("of an earlier turn\n")
        command = [sys.executable, "-c", RUNNER]
        env = {"ANTHROPIC_ENVIRONMENT_KEY": "placeholder", "NO_PROXY": "127.0.0.1"}
        setup = {"command": command, "cwd": str(tmp_path), "env": env, "log": str(log)}
        assert child.stdin is not None
        child.stdin.write((json.dumps(setup) + "\n").encode())
        async with httpx.AsyncClient(trust_env=False) as http:
            lease = Lease(queue_that(lambda _: httpx.Response(500)), Work("work_1", "session", "session_1"))
            base = f"http://127.0.0.1:{server.server_address[1]}"
            relay = Relay(process, http, base, KEY, RULES, lease)
            outcome = await asyncio.wait_for(relay.run(), 60)
        await process.reader
        return outcome

    outcome = asyncio.run(check())
    server.shutdown()
    server.server_close()
    assert (outcome.exit_code, outcome.log, outcome.stopped_work) == (3, "the end of the log\n", False)
    _, _, skill, large, twofold = Upstream.seen
    assert all(request["headers"]["authorization"] == f"Bearer {KEY}" for request in Upstream.seen)
    assert skill["headers"]["x-kept"] == "yes"
    assert len(large["body"]) > 1 << 20
    assert json.loads(twofold["body"]) == {"events": [{"type": "user.tool_result"}]} and b"user.message" not in twofold["body"]


def test_a_runner_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def check() -> Outcome:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", guest_program(), stdin=pipe, stdout=pipe)
        process: Any = LocalProcess(child)
        setup = {"command": ["/nonesuch/ant"], "cwd": str(tmp_path), "env": {}, "log": str(tmp_path / "log")}
        assert child.stdin is not None
        child.stdin.write((json.dumps(setup) + "\n").encode())
        async with httpx.AsyncClient(trust_env=False) as http:
            lease = Lease(queue_that(lambda _: httpx.Response(500)), Work("work_1", "session", "session_1"))
            outcome = await asyncio.wait_for(Relay(process, http, "http://127.0.0.1:1", KEY, RULES, lease).run(), 60)
        await process.reader
        return outcome

    assert asyncio.run(check()) == Outcome(127, "cannot start /nonesuch/ant: No such file or directory")

"""What is sent, what is made of answers, and what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Answer, Driver, Request, Server, settle

import pandastack
from pandastack import (
    AsyncPandaStack,
    AuthError,
    BadRequestError,
    Client,
    CommandFailed,
    ConflictError,
    ExecInterrupted,
    Execution,
    FileChange,
    NotFoundError,
    PandaStack,
    PandastackError,
    PermissionDeniedError,
    RateLimitError,
    Result,
    SandboxTimeout,
    ServerError,
    VolumeMount,
)
from pandastack._config import preview_scheme, resolve
from pandastack._local import safe_name, stays_inside
from pandastack._sse import EventDecoder

ROOT = Path(__file__).resolve().parents[1]


def event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthError),
        (403, PermissionDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, BadRequestError),
        (429, RateLimitError),
        (500, ServerError),
        (504, ServerError),
        (302, BadRequestError),
    ],
)
def test_errors(driver: Driver, status: int, kind: type[PandastackError]) -> None:
    body = {"error": "what is wrong", "code": "a_word", "hint": "do this", "request_id": "r-1"}
    driver.server.answers = [Answer(status, body)]
    with pytest.raises(kind) as raised:
        driver.run(lambda client: client.me())
    error = raised.value
    assert type(error) is kind
    assert (error.message, error.status, error.code, error.hint, error.request_id) == (
        "what is wrong",
        status,
        "a_word",
        "do this",
        "r-1",
    )
    assert str(error) == "what is wrong\nhint: do this" and error.body == body and error.status_code == status


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("its files are kept; start it cold, from its disk", "sandbox.wake(cold=True)"),
        ("start it cold, from its disk", "sandbox.wake(cold=True)"),
        ("raise the timeout, or run it in the background", "sandbox.processes.start("),
        ("send `Authorization: Bearer pds_…`", "api_key="),
        ('it is closed; create it with network "all", or open the network of this one', 'sandbox.patch(network="all")'),
    ],
)
def test_hints_name_calls_of_this_package(driver: Driver, there: str, here: str) -> None:
    driver.server.answers = [Answer(409, {"error": "what is wrong", "hint": there})]
    with pytest.raises(ConflictError) as raised:
        driver.sandbox(lambda box: box.exec("true"))
    assert here in str(raised.value.hint) and there not in str(raised.value)
    assert raised.value.body["hint"] == there
    driver.server.answers = [Answer(200, {"exit_code": 1, "hint": there})]
    assert here in driver.sandbox(lambda box: box.exec("true")).hint
    said = f"event: exit\ndata: {json.dumps({'exit_code': 1, 'hint': there})}\n\n".encode()
    driver.server.answers = [Answer(200, said, {"Content-Type": "text/event-stream"})]
    assert here in driver.sandbox(lambda box: box.exec("true", on_stdout=print)).hint


def test_a_cold_start(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"status": "running"})]

    async def wake(box: Any) -> str:
        await settle(box.wake(cold=True))
        await settle(box.wake())
        return str(box.status)

    assert driver.sandbox(wake) == "running"
    sent = [(one.method, one.path, one.json) for one in driver.server.requests]
    assert sent == [
        ("POST", "/v1/sandboxes/box/start", {"cold": True}),
        ("POST", "/v1/sandboxes/box/wake", None),
    ]


def test_errors_of_others(driver: Driver) -> None:
    driver.server.answers = [Answer(502, b"<html>bad gateway", {"Content-Type": "text/html"})]
    with pytest.raises(ServerError) as raised:
        driver.run(lambda client: client.me())
    assert raised.value.message == "<html>bad gateway" and raised.value.request_id == "from-the-header"
    driver.server.answers = [Answer(500, {"message": "in another field"})]
    with pytest.raises(ServerError, match="in another field"):
        driver.run(lambda client: client.me())
    driver.server.answers = [Answer(500)]
    with pytest.raises(ServerError, match="the server answered 500"):
        driver.run(lambda client: client.me())
    driver.server.answers = [Answer(200, b"<html>hello")]
    with pytest.raises(PandastackError, match="not JSON"):
        driver.run(lambda client: client.me())


def test_headers_and_paths(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"id": "x"})]
    driver.run(lambda client: client.sandboxes.get("../me?x=1"))
    request = driver.server.requests[0]
    assert request.path == "/v1/sandboxes/..%2Fme%3Fx%3D1" and request.query == {}
    assert request.headers["authorization"] == "Bearer pds_test"
    assert request.headers["user-agent"] == f"pandastack-py/{pandastack.__version__}"
    driver.run(lambda client: client.me(), base_url=f"{driver.server.url}/v1/")
    assert driver.server.requests[-1].path == "/v1/me"
    driver.run(lambda client: client.health(), base_url=f"{driver.server.url}/v1/")
    assert driver.server.requests[-1].path == "/healthz"
    with pytest.raises(ValueError, match="not an id"):
        driver.run(lambda client: client.sandboxes.get(".."))
    with pytest.raises(ValueError, match="not an address"):
        driver.run(lambda client: client.me(), base_url="localhost:8080")


def test_where_key_and_address_come_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server) -> None:
    variables = ("PANDASTACK_API_KEY", "PANDASTACK_TOKEN", "PANDASTACK_API", "PANDASTACK_API_URL", "XDG_CONFIG_HOME")
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def told() -> tuple[Any, str]:
        config = PandaStack()._transport.config
        return config.api_key, config.base_url

    assert told() == (None, "https://api.pandastack.ai")
    with pytest.raises(AuthError, match="PANDASTACK_API_KEY"):
        PandaStack(base_url=server.url).me()
    assert server.requests == []
    file = tmp_path / ".config" / "pandastack" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"token": "pds_file", "api_url": "http://file"}')
    assert told() == ("pds_file", "http://file")
    assert PandaStack(base_url="http://file/v1/")._transport.config.api_key == "pds_file"
    assert PandaStack(base_url="http://other")._transport.config.api_key is None
    monkeypatch.setenv("PANDASTACK_TOKEN", "pds_token")
    monkeypatch.setenv("PANDASTACK_API_URL", "http://url")
    assert told() == ("pds_token", "http://url")
    monkeypatch.setenv("PANDASTACK_API_KEY", "pds_key")
    monkeypatch.setenv("PANDASTACK_API", "http://api/")
    assert told() == ("pds_key", "http://api")
    for given in ({"token": "pds_t", "api_url": "http://u"}, {"api_key": "pds_t", "base_url": "http://u", "token": "pds_t"}):
        named = PandaStack(**given)
        assert (named.api_key, named.api_url) == ("pds_t", "http://u")
    with pytest.raises(ValueError, match="two names"):
        PandaStack("pds_1", token="pds_2")
    old = Client("http://argument", "pds_argument")
    assert (old.api_url, old._transport.config.api_key) == ("http://argument", "pds_argument")


def test_the_surface(driver: Driver) -> None:
    driver.run(lambda client: _assert(client.sandbox is client.sandboxes))
    driver.server.answers = [Answer(200)]
    with pytest.raises(ValueError, match="65535"):
        driver.sandbox(lambda box: box.preview_url(0))


def test_previews_by_name(driver: Driver) -> None:
    driver.server.answers = [Answer(200)]
    port = driver.server.url.rpartition(":")[2]
    assert driver.sandbox(lambda box: box.preview_url(8000)) == f"http://8000-box.localhost:{port}"
    assert driver.sandbox(lambda box: box.preview_url(8000, "https")) == f"https://8000-box.localhost:{port}"
    given = {"preview_host": "p.example"}
    assert driver.sandbox(lambda box: box.preview_url(80), **given) == "https://80-box.p.example"
    assert driver.sandbox(lambda box: box.preview_url(80, "http"), **given) == "http://80-box.p.example"


@pytest.mark.parametrize(
    ("base_url", "preview"),
    [
        ("https://api.example.com", "https .example.com"),
        ("http://sandboxes.example.com:8080", "https .sandboxes.example.com"),
        ("http://192.0.2.7:8080", "https .192.0.2.7"),
        ("http://127.0.0.1:8080/v1", "http .localhost:8080"),
        ("http://[::1]:8080", "http .localhost:8080"),
        ("http://localhost", "http .localhost"),
        ("https://api.localhost:8443", "https .localhost:8443"),
    ],
)
def test_where_previews_by_name_are(base_url: str, preview: str) -> None:
    host = resolve("pds_test", base_url, None, None).preview_host
    assert f"{preview_scheme(base_url, host)} .{host}" == preview


def _assert(holds: bool) -> None:
    assert holds


def test_both_clients_have_the_same_surface() -> None:
    for name in pandastack.__all__:
        if name.startswith("Async"):
            ours = {one for one in dir(getattr(pandastack, name)) if not one.startswith("_")}
            theirs = {one for one in dir(getattr(pandastack, name[len("Async") :])) if not one.startswith("_")}
            assert ours == theirs, name


def test_the_sync_client_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_sync.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stderr}run python scripts/generate_sync.py"


def test_one_version() -> None:
    assert f'\nversion = "{pandastack.__version__}"\n' in (ROOT / "pyproject.toml").read_text()


def test_commands(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"stdout": "", "stderr": "no\n", "exit_code": 3, "duration_ms": 1, "new": 1})]
    done = driver.sandbox(lambda box: box.exec("false", 5, cwd="/tmp", env={"A": "b"}, stdin="x", user="u"))
    assert (done.exit_code, done.stderr, done.ok, done["exit_code"]) == (3, "no\n", False, 3)
    assert driver.server.requests[0].json == {
        "cmd": "false",
        "timeout_seconds": 5,
        "cwd": "/tmp",
        "env": {"A": "b"},
        "stdin": "x",
        "user": "u",
    }
    with pytest.raises(CommandFailed) as raised:
        driver.sandbox(lambda box: box.exec("false", check=True))
    assert (raised.value.exit_code, raised.value.stderr) == (3, "no\n")
    driver.server.answers = [Answer(504, {"error": "command timeout after 1 s", "code": "timeout", "request_id": "r"})]
    with pytest.raises(SandboxTimeout) as late:
        driver.sandbox(lambda box: box.exec("sleep 9", timeout_seconds=1))
    assert (late.value.status, late.value.code, late.value.request_id) == (504, "timeout", "r")
    assert late.value.__cause__ is None and late.value.__suppress_context__, "one traceback, not two"
    with pytest.raises(SandboxTimeout):
        driver.sandbox(lambda box: box.run_code("while True: pass"))
    driver.server.answers = [Answer(200, {"stdout": "/root\n", "exit_code": 1, "hint": "give it a network"})]
    driver.server.requests.clear()
    assert driver.sandbox(lambda box: box.exec(["ls", "-d", "a b"])).hint == "give it a network"
    assert driver.server.requests[-1].json == {"cmd": ["ls", "-d", "a b"]}
    with pytest.raises(CommandFailed, match="exit code 1 of: ls 'a b'\nhint: give it a network"):
        driver.sandbox(lambda box: box.exec(["ls", "a b"], check=True))


def test_what_was_written_until_the_time_was_up(driver: Driver) -> None:
    partial = {"stdout": "one\ntwo\n", "stderr": "x" * 300, "truncated": True, "results": [{"text/plain": "7"}]}
    body = {"error": "command timeout after 1 s", "code": "timeout", "hint": "raise it", "partial": partial}
    driver.server.answers = [Answer(504, body)]
    for work in (
        lambda box: box.exec("x", timeout_seconds=1),
        lambda box: box.run_code("x", timeout_seconds=1),
        lambda box: box.run_once("x"),
    ):
        with pytest.raises(SandboxTimeout) as raised:
            driver.sandbox(work)
        late = raised.value
        assert (late.stdout, late.stderr, late.truncated) == ("one\ntwo\n", "x" * 300, True)
        assert late.results[0].text == "7"
        assert str(late) == f"command timeout after 1 s\nlast of stdout: two\nlast of stderr: …{'x' * 200}\nhint: raise it"
    events = event("stdout", '{"chunk":"all of it"}') + event("error", json.dumps({**body, "partial": {"stdout": "of it"}}))
    driver.server.answers = [Answer(200, events, STREAM)]
    for work in (
        lambda box: box.exec("x", on_stdout=print),
        lambda box: box.run_code("x", on_stdout=print),
    ):
        with pytest.raises(SandboxTimeout) as raised:
            driver.sandbox(work)
        assert (raised.value.stdout, raised.value.truncated) == ("all of it", False)
    driver.server.answers = [Answer(200, event("error", json.dumps(body)), STREAM)]
    with pytest.raises(SandboxTimeout, match="last of stdout: two"):
        driver.sandbox(lambda box: box.stream("x"))


def test_code(driver: Driver) -> None:
    cell = {"stdout": "hi\n", "exit": 0, "exit_code": 0, "results": [{"text/plain": "42"}], "context_id": "c"}
    driver.server.answers = [Answer(200, cell)]
    done = driver.sandbox(lambda box: box.run_code("x + 1", "py", 5))
    assert (done.text, done.stdout, done.exit_code, done.context_id, done.ok) == ("42", "hi\n", 0, "c", True)
    driver.sandbox(lambda box: box.run_code("x", context="c"))
    driver.server.answers = [Answer(200, {"language": "ruby", "stdout": "1", "stderr": "e", "exit_code": 3})]
    once = driver.sandbox(lambda box: box.run_code("puts 1", language="ruby"))
    assert (once.stdout, once.stderr, once.exit_code, once.text, once.ok) == ("1", "e", 3, None, False)
    driver.sandbox(lambda box: box.run_code("print(1)", once=True))
    sent = [(one.path.removeprefix("/v1/sandboxes/box/repl"), one.json) for one in driver.server.requests]
    assert sent == [("", {"language": "python", "code": "print(1)"})]
    with pytest.raises(ValueError, match="runs once"):
        driver.sandbox(lambda box: box.run_code("x", once=True, on_stdout=print))


def test_cells_are_followed(driver: Driver) -> None:
    body = (
        b": ping\n\n"
        + event("stdout", '{"chunk":"a"}')
        + event("result", '{"text/plain":"<Figure>","image/png":"iVBOR"}')
        + event("stderr", '{"chunk":"e"}')
        + event("exit", '{"exit":1,"exit_code":1,"error":"Traceback","duration_ms":5,"context_id":"c"}')
    )
    driver.server.answers = [Answer(200, body, STREAM)]
    seen: list[Any] = []
    work = {"on_stdout": seen.append, "on_stderr": seen.append, "on_result": lambda one: seen.append(one.png)}
    done = driver.sandbox(lambda box: box.run_code("plot()", timeout_seconds=2, **work))
    assert seen == ["a", "iVBOR", "e"]
    assert (done.stdout, done.stderr, done.png, done.error, done.exit_code, done.context_id) == (
        *("a", "e", "iVBOR", "Traceback", 1, "c"),
    )
    request = driver.server.requests[-1]
    assert request.path == "/v1/sandboxes/box/repl/sessions/default/run/stream"
    assert request.json == {"code": "plot()", "language": "python", "timeout_ms": 2000}
    for cut in (False, True):
        driver.server.answers = [Answer(200, event("stdout", '{"chunk":"half"}'), STREAM, cut=cut)]
        with pytest.raises(ExecInterrupted) as raised:
            driver.sandbox(lambda box: box.run_code("x", on_stdout=print))
        assert raised.value.partial_stdout == "half"
    driver.server.answers = [Answer(200, event("error", '{"error":"no such context","code":"not_found"}'), STREAM)]
    with pytest.raises(NotFoundError, match="no such context"):
        driver.sandbox(lambda box: box.run_code("x", context="c", on_stdout=print))


def test_streams(driver: Driver) -> None:
    body = (
        b": ping\n\n"
        + event("stdout", '{"chunk":"\\ud83d\\udc3c \\u2028"}')
        + event("stderr", '{"chunk":"e"}')
        + event("exit", '{"exit_code":4}')
    )
    driver.server.answers = [Answer(200, body, STREAM)]
    seen: list[str] = []
    done = driver.sandbox(lambda box: box.exec("x", on_stdout=seen.append))
    assert (done.stdout, done.stderr, done.exit_code, seen) == ("🐼 \u2028", "e", 4, ["🐼 \u2028"])
    pieces = driver.sandbox(lambda box: box.stream("x"))
    assert [(one.stream, one.text) for one in pieces] == [("stdout", "🐼 \u2028"), ("stderr", "e")]
    assert driver.sandbox(lambda box: box.exec_stream("x")) == 4
    driver.server.answers = [Answer(200, event("error", '{"error":"command timeout after 1 s"}'), STREAM)]
    with pytest.raises(SandboxTimeout):
        driver.sandbox(lambda box: box.exec_stream("x"))
    driver.server.answers = [Answer(200, event("error", '{"error":"the sandbox is gone"}'), STREAM)]
    with pytest.raises(ServerError, match="gone"):
        driver.sandbox(lambda box: box.exec_stream("x"))


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_without_an_end_is_not_a_success(driver: Driver, cut: bool) -> None:
    driver.server.answers = [Answer(200, event("stdout", '{"chunk":"half"}'), STREAM, cut=cut)]
    with pytest.raises(ExecInterrupted) as raised:
        driver.sandbox(lambda box: box.exec_stream("x"))
    assert raised.value.partial_stdout == "half"


def test_async_callbacks_are_awaited(server: Server) -> None:
    body = event("stdout", '{"chunk":"a"}') + event("exit", '{"exit_code":0}')
    server.answers = [Answer(200, {"id": "box"}), Answer(200, body, STREAM)]
    seen: list[str] = []

    async def note(text: str) -> None:
        await asyncio.sleep(0)
        seen.append(text)

    async def main() -> None:
        async with AsyncPandaStack("pds_test", server.url) as client:
            await (await client.sandboxes.get("box")).exec("x", on_stdout=note)

    asyncio.run(main())
    assert seen == ["a"]


def test_events_however_they_are_cut() -> None:
    stream = ("event: a\ndata: grüße 🐼\n\n: ping\n\ndata: one\ndata: two\r\n\r\nevent: cut\ndata: off").encode()
    for size in range(1, 12):
        decoder = EventDecoder()
        found = [one for at in range(0, len(stream), size) for one in decoder.feed(stream[at : at + size])]
        assert [(one.event, one.data) for one in found] == [("a", "grüße 🐼"), ("", "one\ntwo")]


def test_context_managers_delete_what_is_not_to_stay(driver: Driver) -> None:
    async def use(client: Any, persistent: bool, status: int) -> list[str]:
        driver.server.answers = [Answer(201, {"id": "box", "persistent": persistent}), Answer(status)]
        driver.server.requests.clear()
        box = await settle(client.sandboxes.create())
        if driver.flavour == "sync":
            with box:
                pass
        else:
            async with box:
                pass
        return [one.method for one in driver.server.requests]

    assert driver.run(lambda client: use(client, False, 204)) == ["POST", "DELETE"]
    assert driver.run(lambda client: use(client, True, 204)) == ["POST"]
    # Gone already: as good.
    assert driver.run(lambda client: use(client, False, 404)) == ["POST", "DELETE", "DELETE"]


def test_creating(driver: Driver) -> None:
    driver.server.answers = [Answer(201, {"id": "box"})]
    driver.run(lambda client: client.sandboxes.create())
    driver.run(lambda client: client.sandboxes.create(from_snapshot="s"))
    driver.run(
        lambda client: client.sandboxes.create(
            "base",
            4,
            1024,
            ttl_seconds=5,
            persistent=True,
            metadata={"a": "b"},
            volumes=["one", {"name": "two", "read_only": True}, "three:/mnt", "four:/a b:ro", VolumeMount("five", "/five")],
            env={"K": "v"},
            network="none",
            disk_gb=4,
            name="mine",
        )
    )
    assert [one.json for one in driver.server.requests] == [
        {"template": "code-interpreter"},
        {"from_snapshot": "s"},
        {
            "template": "base",
            "cpu": 4,
            "memory_mb": 1024,
            "ttl_seconds": 5,
            "persistent": True,
            "metadata": {"a": "b"},
            "volumes": [
                {"name": "one"},
                {"name": "two", "read_only": True},
                {"name": "three", "mount": "/mnt"},
                {"name": "four", "mount": "/a b", "read_only": True},
                {"name": "five", "mount": "/five"},
            ],
            "env": {"K": "v"},
            "network": "none",
            "disk_gb": 4,
            "name": "mine",
        },
    ]


def test_volumes_in_the_short_form() -> None:
    assert VolumeMount.of("data") == VolumeMount("data")
    assert VolumeMount.of("data:ro") == VolumeMount("data", None, True)
    assert VolumeMount.of("data:/mnt:rw") == VolumeMount("data", "/mnt")
    for bad in ("", ":/mnt", "data:mnt", "data:/a:/b", "data:ro:/mnt", "data:/mnt:rx", "data:ro:ro"):
        with pytest.raises(ValueError, match="not a volume"):
            VolumeMount.of(bad)


def test_what_the_server_warns_of_is_said_where_it_was_asked_for(driver: Driver) -> None:
    text = "network is all, but this server has no uplink"
    driver.server.answers = [Answer(201, {"id": "box", "warnings": [text]})]
    with pytest.warns(UserWarning, match="no uplink") as seen:
        box = driver.run(lambda client: client.sandboxes.create(network="all"))
    assert [Path(one.filename).name for one in seen] == ["conftest.py" if driver.flavour == "async" else Path(__file__).name]
    assert box.info.warnings == [text]
    with pytest.warns(UserWarning, match="no uplink"):
        driver.sandbox(lambda box: box.patch(network="all"))


def test_names_and_filters(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"id": "box", "name": "mine", "ancestors": ["a", "b"]})]
    seen = driver.sandbox(lambda box: box.patch(name="mine"))
    assert (seen.name, seen.ancestors) == ("mine", ["a", "b"]) and "name='mine'" in repr(seen)
    driver.sandbox(lambda box: box.patch(name=None))
    driver.sandbox(lambda box: box.patch(env={}))
    filters = {
        "status": ["running", "paused"],
        "template": "base",
        "name": "n",
        "metadata": {"a": "1", "b": None},
        "parent": "p",
        "root": "r",
    }
    driver.server.requests.clear()
    driver.server.answers = [Answer(200, [{"id": "box"}]), Answer(200, {"deleted": ["box"], "failures": {}})]
    assert [one.id for one in driver.run(lambda client: client.sandboxes.list(**filters))] == ["box"]
    assert driver.run(lambda client: client.sandboxes.delete_all(**filters)).deleted == ["box"]
    wanted = [
        ("template", "base"),
        ("name", "n"),
        ("parent", "p"),
        ("root", "r"),
        ("status", "running"),
        ("status", "paused"),
        ("metadata", "a=1"),
        ("metadata", "b"),
    ]
    assert [(one.method, one.pairs) for one in driver.server.requests] == [("GET", wanted), ("DELETE", wanted)]
    driver.run(lambda client: client.sandboxes.delete_all(all=True))
    assert driver.server.requests[-1].pairs == [("all", "true")]
    for wrong in ({}, {"all": False}, {"all": True, "name": "n"}, {"metadata": {}}, {"status": []}):
        count = len(driver.server.requests)
        with pytest.raises(ValueError):
            driver.run(lambda client, wrong=wrong: client.sandboxes.delete_all(**wrong))
        assert len(driver.server.requests) == count, "nothing is sent that might mean all"


def test_trees(driver: Driver) -> None:
    leaf = {"id": "c", "status": "running", "children": []}
    node = {"id": "a", "name": "root", "status": "deleted", "children": [{"id": "b", "children": [leaf]}, {"id": "d"}]}
    answer = {"root": "a", "ancestors": [{"id": "a"}], "tree": node, "snapshots": [{"id": "s", "sandbox_id": "b"}]}
    driver.server.answers = [Answer(200, answer)]
    tree = driver.sandbox(lambda box: box.tree())
    assert [one.id for one in tree.tree.walk()] == ["a", "b", "c", "d"]
    assert (tree.ancestors[0].id, tree.snapshots[0].sandbox_id) == ("a", "b")
    assert tree.tree.children[0].children[0].status == "running"


def test_the_network_of_a_workspace(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"workspace": "w", "network_default": "all"}), Answer(200, {"network_default": None})]
    assert driver.run(lambda client: client.set_network_default("all")).network_default == "all"
    assert driver.run(lambda client: client.set_network_default(None)).network_default is None
    assert [(one.method, one.json) for one in driver.server.requests] == [
        ("PATCH", {"network_default": "all"}),
        ("PATCH", {"network_default": None}),
    ]


def test_closing_is_quiet_when_the_block_fails(driver: Driver) -> None:
    async def use(client: Any, fails: bool) -> None:
        driver.server.answers = [Answer(201, {"id": "box"})]
        box = await settle(client.sandboxes.create())
        driver.server.answers = [Answer(500, {"error": "going away"})]
        if driver.flavour == "sync":
            with box:
                if fails:
                    raise KeyError("of the block")
        else:
            async with box:
                if fails:
                    raise KeyError("of the block")

    with pytest.raises(KeyError) as raised:
        driver.run(lambda client: use(client, True))
    assert raised.value.__context__ is None
    with pytest.raises(ServerError, match="going away"):
        driver.run(lambda client: use(client, False))


def test_the_default_client_takes_arguments_in_the_order_of_earlier_versions(server: Server) -> None:
    client = pandastack.Client(server.url, "k")
    assert (client.api_base, client.api_key, client.timeout, client.max_create_retry_seconds) == (server.url, "k", 60.0, 60.0)
    client.timeout = 5.0
    pandastack.set_default_client(client)
    try:
        server.answers = [Answer(201, {"id": "box"})]
        pandastack.Sandbox.create("base", None, None, {"a": "b"}, 5)
        assert server.requests[0].json == {"template": "base", "metadata": {"a": "b"}, "ttl_seconds": 5}
        server.answers = [Answer(200, [{"name": "base", "label": "Base"}])]
        assert pandastack.templates.list()[0].label == "Base"
        server.answers = [Answer(201, {"prefix": "pds_1"})]
        assert pandastack.tokens.create("mine", 1).prefix == "pds_1"
        assert server.requests[-1].json == {"label": "mine", "expires_in_days": 1}
    finally:
        pandastack.set_default_client(None)
        client.close()
    kept = pandastack.Sandbox.from_dict({"id": "box", "memory_mb": 512}, client, persistent=True)
    assert (kept.id, kept.memory_mb, kept.persistent) == ("box", 512, True)


def test_results_display_themselves() -> None:
    png = base64.b64encode(b"\x89PNG").decode()
    done = Execution.from_dict(
        {
            "stdout": "out",
            "exit": 0,
            "results": [
                {"type": "image/png", "data": png},
                {"text/plain": "a table", "text/html": "<table>", "application/json": '{"a": 1}'},
            ],
        }
    )
    picture, table = done.results
    assert picture._repr_png_() == b"\x89PNG" and picture._repr_html_() is None and picture.chart == png
    assert table._repr_html_() == "<table>" and table.json == {"a": 1} and table._repr_png_() is None
    assert table._repr_mimebundle_() == {"text/plain": "a table", "text/html": "<table>", "application/json": {"a": 1}}
    assert table._repr_mimebundle_(include={"text/html"}) == {"text/html": "<table>"}
    assert (done.text, done.png, done.html, done.logs["stdout"]) == ("a table", png, "<table>", "out")
    assert done._repr_mimebundle_(exclude={"application/json", "text/html"}) == {"text/plain": "a table"}
    failed = Execution.from_dict({"error": "Traceback", "exit_code": 1, "results": None})
    assert not failed.ok and failed._repr_mimebundle_() == {"text/plain": "Traceback"}
    assert Result({"image/png": "not base64!"})._repr_png_() is None


def test_uploads_keep_what_matters(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "sub" / "empty").mkdir(parents=True)
    (tmp_path / "sub" / "run").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "sub" / "run").chmod(0o755)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "large").write_bytes(b"x" * 1_000_000)
    driver.server.answers = [Answer(200, {"path": "", "bytes": 0})]
    seen: list[Any] = []
    written = driver.sandbox(lambda box: box.files.upload(tmp_path, "/root/p/", on_progress=seen.append))
    assert written.bytes == 1_000_010
    puts = {one.query["path"]: one for one in driver.server.requests if one.method == "PUT"}
    assert sorted(puts) == ["/root/p/large", "/root/p/sub/run"]
    assert len(puts["/root/p/large"].body) == 1_000_000 and puts["/root/p/large"].headers["content-length"] == "1000000"
    posts = [(one.path.rsplit("/", 1)[1], one.json) for one in driver.server.requests if one.method == "POST"]
    assert ("mkdir", {"path": "/root/p/sub/empty"}) in posts
    assert ("chmod", {"path": "/root/p/sub/run", "mode": "0755"}) in posts
    last = max(seen, key=lambda one: (one.bytes_done, one.files_done))
    assert (last.bytes_done, last.bytes_total, last.files_done, last.files_total) == (1_000_010, 1_000_010, 2, 2)
    with pytest.raises(FileNotFoundError):
        driver.sandbox(lambda box: box.files.upload(tmp_path / "nonesuch", "/x"))


@pytest.mark.parametrize("name", ["../evil", "..", "a/b", "a\0b", ""])
def test_a_guest_cannot_write_elsewhere(driver: Driver, tmp_path: Path, name: str) -> None:
    with pytest.raises(PandastackError, match="cannot be written here"):
        safe_name(name)
    driver.server.answers = [
        Answer(200, {"name": "d", "path": "/d", "is_dir": True}),
        Answer(200, {"path": "/d", "entries": [{"name": name, "path": "/d/x", "is_dir": False, "size": 1}]}),
        Answer(200, b"evil"),
    ]
    with pytest.raises(PandastackError, match="cannot be written here"):
        driver.sandbox(lambda box: box.files.download("/d", tmp_path / "in"))
    assert [one.name for one in tmp_path.rglob("*")] == ["in"]


def test_a_download_that_breaks_leaves_nothing(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"before")
    stat = Answer(200, {"name": "f", "path": "/f", "is_dir": False, "size": 4, "mode": "-rwxr-xr-x"})
    driver.server.answers = [stat, Answer(200, b"half", cut=True)]
    with pytest.raises(pandastack.ConnectionError):
        driver.sandbox(lambda box: box.files.download("/f", tmp_path / "f"))
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("f", b"before")]
    driver.server.answers = [stat, Answer(200, b"full")]
    driver.sandbox(lambda box: box.files.download("/f", tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b"full" and (tmp_path / "f").stat().st_mode & 0o111


def test_lists_that_were_cut_are_said_to_be(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"path": "/d", "entries": [{"name": "a"}], "truncated": True})]
    with pytest.warns(RuntimeWarning, match="more entries"):
        assert driver.sandbox(lambda box: box.files.list("/d"))[0].path == "/d/a"
    driver.server.answers = [Answer(200, {"name": "d", "path": "/d", "is_dir": True}), driver.server.answers[0]]
    with pytest.raises(PandastackError, match="more entries"):
        driver.sandbox(lambda box: box.files.download("/d", "/tmp/never-made/x/y"))


def test_keys_are_not_shown_by_accident() -> None:
    assert "pds_secret" not in repr(pandastack.Token(prefix="pds_1", token="pds_secret"))
    assert "pds_secret" not in repr(PandaStack("pds_secret", "http://x"))


def test_relative_paths_begin_at_the_home_directory(driver: Driver) -> None:
    def answer(request: Request) -> Answer:
        if request.path.endswith("/exec"):
            return Answer(200, {"stdout": "/home/panda\n", "exit_code": 0})
        return Answer(200, {"id": "box", "path": "", "bytes": 1, "entries": []})

    async def use(client: Any) -> None:
        box = await settle(client.sandboxes.get("box"))
        await settle(box.files.write("note", "x"))
        await settle(box.files.write("./a/b", "x"))
        await settle(box.files.rename("~/c", "d"))
        await settle(box.files.list("."))
        await settle(box.files.list("~"))
        await settle(box.files.write("/abs", "x"))

    driver.server.answer_with = answer
    driver.run(use)
    asked = [one for one in driver.server.requests if one.path.endswith("/exec")]
    assert [one.json["cmd"] for one in asked] == ["pwd"]
    told = [one.query.get("path") or one.json for one in driver.server.requests if "/fs" in one.path]
    home = "/home/panda"
    assert told == [f"{home}/note", f"{home}/a/b", {"path": f"{home}/c", "to": f"{home}/d"}, home, home, "/abs"]


def test_links_stay_links(driver: Driver, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "lib").mkdir(parents=True)
    (there / "lib" / "a").write_text("a")
    for name, target in {"lib64": "lib", "a": "lib/a", "gone": "../nowhere", "lib/up": "../lib"}.items():
        (there / name).symlink_to(target)
    driver.server.answers = [Answer(200, {"path": "", "bytes": 1, "exit_code": 0})]
    driver.sandbox(lambda box: box.files.upload(there, "/p"))
    assert [one.query["path"] for one in driver.server.requests if one.method == "PUT"] == ["/p/lib/a"]
    links = [one.json["cmd"] for one in driver.server.requests if one.path.endswith("/exec")]
    assert [one[:2] + one[3:] for one in links] == [
        ["sh", "-c", "sh", "lib/a", "/p/a", "../nowhere", "/p/gone", "lib", "/p/lib64", "../lib", "/p/lib/up"]
    ]
    driver.server.answers = [Answer(200, {"path": "", "bytes": 1, "exit_code": 1, "stderr": "ln: read-only\n"})]
    with pytest.raises(PandastackError, match="read-only"):
        driver.sandbox(lambda box: box.files.upload(there, "/p"))

    def entry(name: str, link: Any = None, is_dir: bool = False) -> dict[str, Any]:
        return {"name": name, "path": f"/d/{name}", "is_dir": is_dir, "size": 1, "link_target": link}

    listings = {
        "/d": [
            entry("f"),
            entry("ok", "sub/x"),
            entry("dir", "sub", True),
            entry("sub", None, True),
            entry("out", "../../etc"),
        ],
        "/d/sub": [{**entry("up", "../f"), "path": "/d/sub/up"}, {**entry("x"), "path": "/d/sub/x"}],
    }

    def answer(request: Request) -> Answer:
        path = request.query.get("path", "")
        if request.path.endswith("/stat"):
            return Answer(200, {"name": "d", "path": "/d", "is_dir": True})
        if request.path.endswith("/dir"):
            return Answer(200, {"path": path, "entries": listings[path]})
        return Answer(200, b"x") if request.path.endswith("/fs") else Answer(200, {"id": "box"})

    driver.server.answer_with = answer
    back = tmp_path / "back"
    back.mkdir()
    # As a guest could have left it by an earlier download, to lead the next one elsewhere.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (back / "sub").symlink_to(elsewhere)
    (back / "ok").symlink_to("old")
    with pytest.warns(RuntimeWarning, match=r"/d/out -> \.\./\.\./etc"):
        driver.run(lambda client: fetch(client, back))
    assert list(elsewhere.iterdir()) == [] and (back / "sub" / "x").read_bytes() == b"x"
    assert {one.name: str(one.readlink()) for one in [*back.iterdir(), *(back / "sub").iterdir()] if one.is_symlink()} == {
        "ok": "sub/x",
        "dir": "sub",
        "up": "../f",
    }


async def fetch(client: Any, local: Path) -> None:
    box = await settle(client.sandboxes.get("box"))
    await settle(box.files.download("/d", local))


@pytest.mark.parametrize(
    ("link", "target", "inside"),
    [
        ("a", "b", True),
        ("a", "./b//c", True),
        ("a", ".", True),
        ("a", "", False),
        ("a", "..", False),
        ("a", "/etc", False),
        ("a", "b/../../c", False),
        ("d/a", "../b", True),
        ("d/a", "../../b", False),
        ("d/a", "x/../..", False),
        ("d/a", "..\\..\\b", False),
        ("d/a", "a\0b", False),
    ],
)
def test_links_that_lead_elsewhere(link: str, target: str, inside: bool) -> None:
    assert stays_inside(Path("/t"), Path("/t", link), target) is inside


def test_watching(driver: Driver) -> None:
    body = (
        event("ready", "{}")
        + b": ping\n\n"
        + event("change", '{"path":"/root/a","kind":"created","is_dir":false}')
        + event("overflow", "{}")
        + event("change", '{"path":"/root/a","kind":"moved","is_dir":true,"to":"/root/b"}')
    )
    driver.server.answers = [Answer(200, body, STREAM)]

    async def three(box: Any) -> list[FileChange]:
        seen: list[FileChange] = []
        if driver.flavour == "sync":
            with box.files.watch("/root", recursive=True) as changes:
                for change in changes:
                    seen.append(change)
                    if len(seen) == 3:
                        changes.close()
        else:
            async with box.files.watch("/root", recursive=True) as changes:
                async for change in changes:
                    seen.append(change)
                    if len(seen) == 3:
                        await changes.close()
        return seen

    assert driver.sandbox(three) == [
        FileChange("/root/a", "created"),
        FileChange("/root", "overflow"),
        FileChange("/root/a", "moved", True, "/root/b"),
    ]
    assert driver.server.requests[0].query == {"path": "/root", "recursive": "true"}
    # An end that was not asked for is none.
    with pytest.raises(pandastack.ConnectionError, match="watching ended"):
        driver.sandbox(lambda box: box.files.watch("/root"))
    driver.server.answers = [Answer(200, event("error", '{"error":"it is gone","code":"not_found"}'), STREAM)]
    with pytest.raises(NotFoundError, match="it is gone"):
        driver.sandbox(lambda box: box.files.watch("/root"))


def test_links_to_files(driver: Driver) -> None:
    driver.server.answers = [Answer(200, {"url": "http://x/v1/f/t", "method": "GET"})]
    assert driver.sandbox(lambda box: box.files.download_url("/a")) == "http://x/v1/f/t"
    assert driver.server.requests[0].json == {"path": "/a", "operation": "read"}
    driver.sandbox(lambda box: box.files.upload_url("/a", expires_in_seconds=60))
    assert driver.server.requests[0].json == {"path": "/a", "operation": "write", "expires_in_seconds": 60}

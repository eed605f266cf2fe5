"""Holds the clients against the server's own description, `docs/openapi.json`.

Every method is called against a server that answers from that document and refuses what is not in it, so that a change of the
contract that breaks a client fails here.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from conftest import Answer, Driver, Request, settle

import pandastack
from pandastack import models

DOCUMENT = json.loads((Path(__file__).resolve().parents[3] / "docs" / "openapi.json").read_text(encoding="utf-8"))
SCHEMAS = DOCUMENT["components"]["schemas"]

# Where a model's name is not its schema's.
SCHEMA_OF = {
    "SandboxInfo": "Sandbox",
    "ExecResult": "ExecAnswer",
    "ProcessInfo": "Process",
    "FileInfo": "FileEntry",
    "Promotion": "PromoteAnswer",
    "ContextInfo": "Context",
    "Token": "CreatedToken",
}

# What other servers say beyond our document.
BEYOND = {"Template": {"label", "description", "category", "base"}}

MODELS = [
    one for _, one in inspect.getmembers(models, inspect.isclass) if issubclass(one, models.Model) and one is not models.Model
]


def properties(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return properties(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]])
    found = dict(schema.get("properties", {}))
    for part in schema.get("allOf", []):
        found.update(properties(part))
    return found


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_have_the_fields_of_their_schemas(model: type[models.Model]) -> None:
    fields = {one.name: one for one in dataclasses.fields(model)}
    wanted = properties(SCHEMAS[SCHEMA_OF.get(model.__name__, model.__name__)])
    assert set(fields) == set(wanted) | BEYOND.get(model.__name__, set())
    for name, schema in wanted.items():
        kinds = schema.get("type", [])
        kinds = set(kinds if isinstance(kinds, list) else [kinds])
        python = {
            "string": "str",
            "integer": "int",
            "number": "float",
            "boolean": "bool",
            "array": "list",
            "object": "dict",
        }
        expected = {python[one] for one in kinds if one in python}
        if expected:
            assert any(one in str(fields[name].type) for one in expected), f"{name}: {fields[name].type} is not {kinds}"
        assert (name in model._nested) == ("$ref" in json.dumps(schema) and _is_object(schema)), name


def _is_object(schema: dict[str, Any]) -> bool:
    """Whether a field holds objects that have fields of their own: one, or a list. Maps of them are left as they are."""
    found = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(schema))
    return bool(found) and "properties" in SCHEMAS[found[0]] and "additionalProperties" not in schema


def sample(schema: dict[str, Any], within: tuple[str, ...] = ()) -> Any:
    """A value that a schema allows, with every field set. Schemas that contain themselves end after one round."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return {} if name in within else sample(SCHEMAS[name], (*within, name))
    if "allOf" in schema:
        return {key: value for part in schema["allOf"] for key, value in sample(part, within).items()}
    if "oneOf" in schema:
        return sample(schema["oneOf"][0], within)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    if kind == "object" or "properties" in schema:
        if "properties" not in schema:
            return {"key": sample(schema.get("additionalProperties", {"type": "string"}), within)}
        return {key: sample(value, within) for key, value in schema["properties"].items()}
    if kind == "array":
        return [sample(schema["items"], within)]
    return {"string": "text", "integer": 7, "number": 7.5, "boolean": True}.get(str(kind))


STREAMS = {
    "/exec/stream": b'event: stdout\ndata: {"chunk":"x"}\n\nevent: exit\ndata: {"exit_code":0}\n\n',
    "/output": b'event: stdout\ndata: {"chunk":"x"}\n\nevent: exit\ndata: {"exit_code":0}\n\n',
    "/run/stream": b'event: stdout\ndata: {"chunk":"x"}\n\nevent: exit\ndata: {"exit_code":0}\n\n',
    "/fs/watch": b'event: ready\ndata: {}\n\nevent: change\ndata: {"path":"/x","kind":"created"}\n\n',
    "/events": b'event: event\ndata: {"type":"sandbox.running"}\n\n',
    "/logs": b'event: line\ndata: {"line":"x\\n"}\n\n',
}


class FromDocument:
    """Answers what the document says; writes down what it does not know, and what was used."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.used: set[tuple[str, str]] = set()

    def __call__(self, request: Request) -> Answer:
        try:
            return self.answer(request)
        except AssertionError as error:
            self.wrong.append(f"{request.method} {request.path}: {error}")
            return Answer(400, {"error": str(error)})

    def answer(self, request: Request) -> Answer:
        path, operation = self.operation(request)
        self.used.add((request.method, path))
        known = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
        assert set(request.query) <= known, f"query {set(request.query) - known}"
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            given = request.json or {}
            fields = properties(content["application/json"]["schema"])
            assert set(given) <= set(fields), f"fields {set(given) - set(fields)}"
            for name, value in given.items():
                assert _fits(value, fields[name]), f"{name} is {value!r}"
        elif "application/octet-stream" not in content:
            assert not request.body, "a body that nobody reads"
        status, response = next((int(code), one) for code, one in operation["responses"].items() if code < "300")
        offered = response.get("content", {})
        if "text/event-stream" in offered and ("json" not in str(list(offered)) or "follow" in request.query):
            follow = request.query.get("follow") in (None, "1", "true")
            if follow:
                stream = next(body for end, body in STREAMS.items() if path.endswith(end))
                return Answer(status, stream, {"Content-Type": "text/event-stream"})
            return Answer(status, b"one line\n", {"Content-Type": "text/plain"})
        if "application/octet-stream" in offered:
            return Answer(status, b"content")
        if "application/json" in offered:
            return Answer(status, sample(offered["application/json"]["schema"]))
        return Answer(status)

    def operation(self, request: Request) -> tuple[str, dict[str, Any]]:
        for path, methods in DOCUMENT["paths"].items():
            pattern = re.sub(r"\{[^}]+\}", "[^/]+", path)
            if re.fullmatch(pattern, request.path) and request.method.lower() in methods:
                return path, methods[request.method.lower()]
        raise AssertionError("no such path")


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    if kinds is None:
        return True
    names = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    return any(isinstance(value, names[one]) for one in (kinds if isinstance(kinds, list) else [kinds]))


Work = Callable[[Any], Any]

CLIENT: dict[str, Work] = {
    "me": lambda c: c.me(),
    "set_network_default": lambda c: c.set_network_default("all"),
    "audit": lambda c: c.audit(since="0", limit=5),
    "boot_stats": lambda c: c.boot_stats(5),
    "version": lambda c: c.version(),
    "health": lambda c: c.health(),
    "sandboxes.create": lambda c: c.sandboxes.create(
        "base",
        ttl_seconds=5,
        persistent=True,
        metadata={"a": "b"},
        from_snapshot="s",
        volumes=["v", {"name": "w", "read_only": True}, "x:/mnt:ro"],
        env={"A": "b"},
        network="none",
        cpu=2,
        memory_mb=1024,
        disk_gb=8,
        name="n",
    ),
    "sandboxes.list": lambda c: c.sandboxes.list(),
    "sandboxes.list, filtered": lambda c: c.sandboxes.list(
        status="running", template="t", name="n", metadata={"a": "b"}, parent="p", root="r"
    ),
    "sandboxes.delete_all": lambda c: c.sandboxes.delete_all(all=True),
    "sandboxes.get": lambda c: c.sandboxes.get("x"),
    "sandboxes.delete": lambda c: c.sandboxes.delete("x"),
    "snapshots.list": lambda c: c.snapshots.list(sandbox_id="x"),
    "snapshots.get": lambda c: c.snapshots.get("s"),
    "snapshots.delete": lambda c: c.snapshots.delete("s"),
    "templates.list": lambda c: c.templates.list(),
    "templates.get": lambda c: c.templates.get("base"),
    "templates.prepare": lambda c: c.templates.prepare("base"),
    "volumes.create": lambda c: c.volumes.create("v", 64),
    "volumes.list": lambda c: c.volumes.list(),
    "volumes.get": lambda c: c.volumes.get("v"),
    "volumes.resize": lambda c: c.volumes.resize("v", 128),
    "volumes.delete": lambda c: c.volumes.delete("v"),
    "tokens.create": lambda c: c.tokens.create("n", 1, scope="read"),
    "tokens.list": lambda c: c.tokens.list(),
    "tokens.revoke": lambda c: c.tokens.revoke("pds_1"),
}

SANDBOX: dict[str, Work] = {
    "refresh": lambda b: b.refresh(),
    "pause": lambda b: b.pause(),
    "resume": lambda b: b.resume(),
    "hibernate": lambda b: b.hibernate(),
    "wake": lambda b: b.wake(),
    "wake, cold": lambda b: b.wake(cold=True),
    "lifecycle": lambda b: b.lifecycle(),
    "set_ttl": lambda b: b.set_ttl(5),
    "set_persistent": lambda b: b.set_persistent(True),
    "patch": lambda b: b.patch(metadata={"a": None}, env={"A": "b"}, network="all", name="n"),
    "tree": lambda b: b.tree(),
    "exec": lambda b: b.exec("x", 1.5, cwd="/", env={"A": "b"}, stdin="x", user="u"),
    "stream": lambda b: b.stream("x", 1.5),
    "exec, a list": lambda b: b.exec(["x"]),
    "run_code": lambda b: b.run_code("x", "bash", 1.5),
    "run_code, followed": lambda b: b.run_code("x", "bash", 1.5, on_stdout=str),
    "run_once": lambda b: b.run_once("x", "bash", 1.5),
    "create_code_context": lambda b: b.create_code_context(cwd="/"),
    "code_contexts": lambda b: b.code_contexts(),
    "snapshot": lambda b: b.snapshot(),
    "fork": lambda b: b.fork({"a": "b"}),
    "fork_tree": lambda b: b.fork_tree(2, {"a": "b"}),
    "promote": lambda b: b.promote(cleanup_siblings=True, tree_id="t"),
    "logs": lambda b: b.logs("stdout", tail=5),
    "logs, followed": lambda b: b.logs(follow=True),
    "events": lambda b: b.events(5),
    "follow_events": lambda b: b.follow_events(5),
    "metrics": lambda b: b.metrics(),
    "ports": lambda b: b.ports(),
    "add_port": lambda b: b.add_port(80, "web"),
    "remove_port": lambda b: b.remove_port(80),
    "preview": lambda b: b.preview(80, ttl_seconds=5, paths=["/a"]),
    "files.read": lambda b: b.files.read("/x"),
    "files.stream": lambda b: b.files.stream("/x"),
    "files.write": lambda b: b.files.write("/x", b"x"),
    "files.list": lambda b: b.files.list("/x"),
    "files.stat": lambda b: b.files.stat("/x"),
    "files.mkdir": lambda b: b.files.mkdir("/x", "0755"),
    "files.chmod": lambda b: b.files.chmod("/x", "0755"),
    "files.rename": lambda b: b.files.rename("/x", "/y"),
    "files.remove": lambda b: b.files.remove("/x"),
    "files.watch": lambda b: _one(b.files.watch("/x", recursive=True)),
    "files.download_url": lambda b: b.files.download_url("/x", 60),
    "files.upload_url": lambda b: b.files.upload_url("/x", 60),
    "processes.start": lambda b: b.processes.start("x", cwd="/", env={}, stdin=True, tag="t", timeout_seconds=1.5, user="u"),
    "processes.start, a list": lambda b: b.processes.start(["ls", "-l"]),
    "processes.list": lambda b: b.processes.list(),
    "processes.get": lambda b: b.processes.get(1),
    "delete": lambda b: b.delete(),
}

THROUGH: dict[str, Work] = {
    "context.run_code": lambda b: _then(b.create_code_context(), lambda c: c.run_code("x", 1.5)),
    "context.close": lambda b: _then(b.create_code_context(), lambda c: c.close()),
    "process.refresh": lambda b: _then(b.processes.get(1), lambda p: p.refresh()),
    "process.stream": lambda b: _then(b.processes.get(1), lambda p: p.wait()),
    "process.write": lambda b: _then(b.processes.get(1), lambda p: p.write("x", close=True)),
    "process.signal": lambda b: _then(b.processes.get(1), lambda p: p.signal(9)),
    "process.kill": lambda b: _then(b.processes.get(1), lambda p: p.kill()),
}


async def _one(watch: Any) -> Any:
    """The first change that is seen."""
    try:
        return await settle(watch.__anext__()) if hasattr(watch, "__anext__") else next(watch)
    finally:
        await settle(watch.close())


async def _then(first: Any, work: Work) -> Any:
    return await settle(work(await settle(first)))


# What these clients leave out on purpose: other protocols, doubles of what they use, and what browsers use.
NOT_USED = {
    ("POST", "/mcp"),
    ("POST", "/v1/mcp"),
    ("POST", "/v1/sandboxes/{id}/mcp"),
    ("GET", "/metrics"),
    ("GET", "/version"),
    ("GET", "/v1/orgs"),
    ("GET", "/v1/orgs/{id}"),
    ("GET", "/v1/p/{token}/{path}"),
    ("GET", "/v1/lsp/languages"),
    ("GET", "/v1/repl/languages"),
    ("GET", "/v1/sandboxes/{id}/lsp/{language}"),
    ("GET", "/v1/sandboxes/{id}/exec/ws"),
    ("GET", "/v1/sandboxes/{id}/ssh"),
    ("GET", "/v1/sandboxes/{id}/proxy/{port}/{path}"),
    ("POST", "/v1/sandboxes/{id}/preview"),
    ("POST", "/v1/sandboxes/{id}/start"),
    ("POST", "/v1/sandboxes/{id}/stop"),
    # Used, as WebSockets: by the table of behaviour.
    ("GET", "/v1/sandboxes/{id}/exec/pty"),
    ("GET", "/v1/sandboxes/{id}/ports/{port}/tcp"),
    # What the links of files.download_url and files.upload_url lead to.
    ("GET", "/v1/f/{token}"),
    ("PUT", "/v1/f/{token}"),
}


@pytest.mark.filterwarnings("ignore:.*more entries", "ignore:text:UserWarning")
def test_every_request_is_one_the_server_knows(driver: Driver) -> None:
    document = FromDocument()
    driver.server.answer_with = document
    failed: dict[str, Optional[BaseException]] = {}

    async def all_of_it(client: Any) -> None:
        box = await settle(client.sandboxes.get("x"))
        for name, on, work in [
            *((name, client, work) for name, work in CLIENT.items()),
            *((name, box, work) for name, work in {**SANDBOX, **THROUGH}.items()),
        ]:
            try:
                result = await settle(work(on))
                if hasattr(result, "__anext__"):
                    result = [one async for one in result]
                elif hasattr(result, "__next__"):
                    result = list(result)
                assert result is not None or name.split(".")[-1] in NOTHING, f"{name} gave nothing"
            except Exception as error:
                failed[name] = error

    driver.run(all_of_it)
    assert not document.wrong and not failed, f"{document.wrong} {failed}"
    offered = {
        (method.upper(), path)
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete")
    }
    left_out = offered - document.used - NOT_USED
    if left_out:
        # A server may grow before its clients do: said, not failed.
        print(f"not in the client: {sorted(left_out)}")


#: Methods that give nothing.
NOTHING = {
    *(
        "delete",
        "revoke",
        "pause",
        "resume",
        "hibernate",
        "wake",
        "wake, cold",
        "remove_port",
        "mkdir",
        "chmod",
        "rename",
        "remove",
    ),
    *("close", "write", "signal", "kill"),
}


def test_names_of_earlier_versions() -> None:
    from pandastack.client import Client as FromClient
    from pandastack.exceptions import ConnectionError, ExecInterrupted
    from pandastack.explore import Candidate
    from pandastack.sandbox import Sandbox, set_default_client

    assert FromClient is pandastack.Client and issubclass(pandastack.Client, pandastack.PandaStack)
    assert Candidate is pandastack.Candidate and callable(pandastack.explore) and callable(set_default_client)
    assert ConnectionError is pandastack.APIConnectionError and issubclass(ExecInterrupted, pandastack.PandastackError)
    for name in ("create", "list", "get", "exec", "exec_stream", "run_code", "create_code_context", "logs", "kill", "pause"):
        assert callable(getattr(Sandbox, name))
    for name in ("resume", "hibernate", "wake", "snapshot", "fork", "fork_tree", "promote", "explore", "set_ttl", "refresh"):
        assert callable(getattr(Sandbox, name))
    for name in ("read", "write", "upload", "download", "listdir", "stat", "exists", "walk"):
        assert callable(getattr(pandastack.SandboxFilesystem, name))


def test_the_default_client() -> None:
    first = pandastack.PandaStack("pds_1", "http://x")
    pandastack.set_default_client(first)
    assert pandastack.get_default_client() is first
    pandastack.set_default_client(None)
    assert pandastack.get_default_client() is not first
    pandastack.set_default_client(None)

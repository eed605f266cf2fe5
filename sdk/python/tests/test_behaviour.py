"""Runs the table of behaviour, `sdk/behaviour/cases.json`, against a real server: once with each client.

Needs PANDASTACK_API and PANDASTACK_API_KEY; without them every case is skipped, and says so.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import json
import os
import re
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Optional

import httpx
import pytest

import pandastack
from pandastack import AsyncPandaStack, Candidate, PandaStack, exceptions

TABLE = json.loads((Path(__file__).resolve().parents[2] / "behaviour" / "cases.json").read_text(encoding="utf-8"))

# The kinds of the table, most special first.
KINDS: list[tuple[str, type[Exception]]] = [
    ("timeout", exceptions.SandboxTimeout),
    ("command_failed", exceptions.CommandFailed),
    ("explore", exceptions.ExploreError),
    ("auth", exceptions.AuthError),
    ("permission", exceptions.PermissionDeniedError),
    ("not_found", exceptions.NotFoundError),
    ("conflict", exceptions.ConflictError),
    ("rate_limited", exceptions.RateLimitError),
    ("bad_request", exceptions.BadRequestError),
    ("server", exceptions.ServerError),
]


@pytest.mark.parametrize("flavour", ["sync", "async"])
@pytest.mark.parametrize("case", TABLE["cases"], ids=[case["name"] for case in TABLE["cases"]])
def test_case(case: dict[str, Any], flavour: str) -> None:
    if not os.environ.get("PANDASTACK_API"):
        pytest.skip("PANDASTACK_API is not set: NOTHING WAS TESTED AGAINST A SERVER")
    asyncio.run(run_case(case, PandaStack if flavour == "sync" else AsyncPandaStack))


async def run_case(case: dict[str, Any], client_class: type) -> None:
    # Guests may be emulated and the host busy.
    runner = Runner(client_class, case.get("template", TABLE["template"]))
    try:
        for number, step in enumerate(case["steps"], 1):
            try:
                await runner.step(step)
            except Exception as error:
                raise AssertionError(f"step {number}, {json.dumps(step)}: {type(error).__name__}: {error}") from error
    finally:
        await runner.clean_up()


async def settle(value: Any) -> Any:
    """What a method of either client gives."""
    return await value if inspect.isawaitable(value) else value


async def collect(items: Any) -> list[Any]:
    """All items of an iterator of either client."""
    return [item async for item in items] if hasattr(items, "__aiter__") else list(items)


def wire(value: Any) -> Any:
    """A result as the server described it: with dictionaries and lists."""
    if isinstance(value, pandastack.models.Model):
        return value.to_dict()
    if hasattr(value, "info"):
        return value.info.to_dict()
    return value


class Runner:
    def __init__(self, client_class: type, template: str) -> None:
        self.client_class = client_class
        self.client = client_class(timeout=120, max_create_retry_seconds=600)
        self.template = template
        self.results: dict[str, Any] = {}
        self.things: dict[str, Any] = {}
        self.undo: list[Callable[[], Any]] = []

    # Steps.

    async def step(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + step.get("within", 0)
        while True:
            try:
                return await self.try_step(step)
            except Exception:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(0.2)

    async def try_step(self, step: dict[str, Any]) -> None:
        arguments = self.filled(step.get("with", {}))
        on = self.things[step["on"]] if "on" in step else None
        expected_error = step.get("error")
        try:
            result, thing = await getattr(self, f"do_{step['do']}")(on, arguments)
        except exceptions.PandastackError as error:
            if expected_error is None:
                raise
            self.check_error(error, self.filled(expected_error))
            return
        assert expected_error is None, f"it did not fail, but gave {result}"
        result = wire(result)
        if "as" in step:
            self.name(step["as"], result, thing)
        for path, wanted in self.filled(step.get("expect", {})).items():
            check(path, look_up(result, path), wanted)

    def name(self, name: str, result: Any, thing: Any) -> None:
        self.results[name] = result
        self.things[name] = thing
        if isinstance(thing, list):
            for index, one in enumerate(thing):
                self.name(f"{name}.{index}", wire(one), one)

    def filled(self, value: Any) -> Any:
        """Arguments with what earlier results say."""
        if isinstance(value, dict):
            return {key: self.filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if not isinstance(value, str):
            return value
        whole = re.fullmatch(r"\$([A-Za-z]\w*(?:\.\w+)+)", value)
        if whole:
            return self.result(whole.group(1))
        return re.sub(r"\$\{([^}]+)\}", lambda found: str(self.result(found.group(1))), value)

    def result(self, path: str) -> Any:
        # A child of a tree is named "tree.1": the longest name that there is.
        parts = path.split(".")
        for end in range(len(parts) - 1, 0, -1):
            name = ".".join(parts[:end])
            if name in self.results:
                return look_up(self.results[name], ".".join(parts[end:]))
        raise KeyError(path)

    def check_error(self, error: exceptions.PandastackError, wanted: dict[str, Any]) -> None:
        kind = next((name for name, cls in KINDS if isinstance(error, cls)), type(error).__name__)
        assert kind == wanted["kind"] or (wanted["kind"] == "bad_request" and isinstance(error, exceptions.BadRequestError)), (
            f"{kind} instead of {wanted['kind']}: {error}"
        )
        if error.status is not None:
            assert error.request_id, "the error has no request id"
        for field in ("status", "code", "message", "stdout", "stderr"):
            if field in wanted:
                check(field, getattr(error, field), wanted[field])
        if "text" in wanted:
            check("text", str(error), wanted["text"])

    async def clean_up(self) -> None:
        for work in reversed(self.undo):
            try:
                await settle(work())
            except exceptions.NotFoundError:
                pass
        await settle(self.client.close())

    def owned(self, sandbox: Any) -> Any:
        self.undo.append(sandbox.delete)
        return sandbox

    # Verbs.

    async def do_create(self, on: Any, with_: dict[str, Any]) -> Any:
        if "from_snapshot" not in with_:
            with_.setdefault("template", self.template)
        box = self.owned(await settle(self.client.sandbox.create(**with_)))
        return box, box

    async def do_get(self, on: Any, with_: dict[str, Any]) -> Any:
        box = await settle(on.refresh() if on is not None else self.client.sandboxes.get(with_["id"]))
        return box, box

    async def do_list(self, on: Any, with_: dict[str, Any]) -> Any:
        return {"ids": [one.id for one in await settle(self.client.sandboxes.list(**with_))]}, None

    async def do_delete_all(self, on: Any, with_: dict[str, Any]) -> Any:
        return await settle(self.client.sandboxes.delete_all(**with_)), None

    async def do_tree(self, on: Any, with_: dict[str, Any]) -> Any:
        tree = await settle(on.tree())
        return {**tree.to_dict(), "ids": [one.id for one in tree.tree.walk()]}, None

    async def do_delete(self, on: Any, with_: dict[str, Any]) -> Any:
        await settle(on.delete())
        return None, None

    async def do_patch(self, on: Any, with_: dict[str, Any]) -> Any:
        return await settle(on.patch(**with_)), on

    async def do_lifecycle(self, on: Any, with_: dict[str, Any]) -> Any:
        result = None
        if "ttl_seconds" in with_:
            result = await settle(on.set_ttl(with_["ttl_seconds"]))
        if "persistent" in with_:
            result = await settle(on.set_persistent(with_["persistent"]))
        return result or await settle(on.lifecycle()), None

    async def do_state(self, on: Any, with_: dict[str, Any]) -> Any:
        # Only waking has an option: `cold`.
        await settle(getattr(on, with_.pop("to"))(**with_))
        return None, None

    async def do_exec(self, on: Any, with_: dict[str, Any]) -> Any:
        if not with_.pop("stream", False):
            return await settle(on.exec(**with_)), None
        order, notes = ordered("stdout", "stderr")
        done = await settle(on.exec(**notes, **with_))
        return {**done.to_dict(), "order": order}, None

    async def do_write(self, on: Any, with_: dict[str, Any]) -> Any:
        content = with_["text"].encode() if "text" in with_ else base64.b64decode(with_["base64"])
        repeat = with_.get("repeat")
        # Many times the same: sent as a stream, to show that it can be.
        given = content if repeat is None else (content * 4096 for _ in range(repeat // 4096))
        return await settle(on.files.write(with_["path"], given)), None

    async def do_read(self, on: Any, with_: dict[str, Any]) -> Any:
        content = await settle(on.filesystem.read(with_["path"]))
        if len(content) > 1 << 20:
            assert b"".join(await collect(on.files.stream(with_["path"]))) == content
        result = {
            "base64": base64.b64encode(content).decode(),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        try:
            result["text"] = content.decode()
        except UnicodeDecodeError:
            pass
        return result, None

    async def do_files(self, on: Any, with_: dict[str, Any]) -> Any:
        op = with_.pop("op")
        answer = await settle(getattr(on.files, op)(**with_))
        if op == "list":
            return {"entries": [one.to_dict() for one in answer], "names": [one.name for one in answer]}, None
        return {"exists": answer} if op == "exists" else answer, None

    async def do_transfer(self, on: Any, with_: dict[str, Any]) -> Any:
        import tempfile

        with tempfile.TemporaryDirectory() as scratch:
            there, back = Path(scratch, "there"), Path(scratch, "back")
            for name, text in with_["files"].items():
                (there / name).parent.mkdir(parents=True, exist_ok=True)
                (there / name).write_text(text, encoding="utf-8")
            for name, target in with_.get("links", {}).items():
                (there / name).symlink_to(target)
            up: list[Any] = []
            down: list[Any] = []
            await settle(on.files.upload(there, with_["path"], on_progress=up.append))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # Of links that are left out.
                await settle(on.files.download(with_["path"], back, on_progress=down.append))
            every = {path.relative_to(back).as_posix(): path for path in back.rglob("*")}
            links = {name: os.readlink(path) for name, path in every.items() if path.is_symlink()}
            files = {
                name: path.read_text(encoding="utf-8")
                for name, path in every.items()
                if path.is_file() and not path.is_symlink()
            }
        ends = [max(seen, key=lambda one: (one.bytes_done, one.files_done)) for seen in (up, down)]
        whole = all(one.bytes_done == one.bytes_total and one.files_done == one.files_total for one in ends)
        return {"files": files, "links": links, "progress": whole}, None

    async def do_link(self, on: Any, with_: dict[str, Any]) -> Any:
        op, text = with_.pop("op"), with_.pop("text", None)
        url = await settle(getattr(on.files, f"{op}_url")(**with_))
        answer = httpx.get(url, timeout=60) if op == "download" else httpx.put(url, content=text.encode(), timeout=60)
        return {"url": url, "status": answer.status_code, "text": answer.text}, None

    async def do_watch(self, on: Any, with_: dict[str, Any]) -> Any:
        cmd, until = with_.pop("cmd"), with_.pop("until")
        watch = on.files.watch(**with_)
        seen: list[Any] = []
        try:
            await settle(watch.open())
            await settle(on.exec(cmd))
            while not seen or f"{seen[-1].kind} {seen[-1].path}" != until:
                seen.append(await settle(watch.__anext__()) if hasattr(watch, "__anext__") else next(watch))
        finally:
            await settle(watch.close())
        moved = {one.path: one.to for one in seen if one.kind == "moved"}
        return {"changes": [f"{one.kind} {one.path}" for one in seen], "moved": moved}, None

    async def do_tunnel(self, on: Any, with_: dict[str, Any]) -> Any:
        tunnel = on.tunnel(with_["port"])
        try:
            await settle(tunnel.open())
            reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.local_port)
            writer.write(with_["send"].encode())
            writer.write_eof()
            try:
                text = (await asyncio.wait_for(reader.read(-1), 60)).decode()
            except OSError as error:
                raise AssertionError(f"no answer: {tunnel.error or error}") from error
            finally:
                writer.close()
        finally:
            await settle(tunnel.close())
        assert text, f"no answer: {tunnel.error}"
        return {"text": text}, None

    async def do_terminal(self, on: Any, with_: dict[str, Any]) -> Any:
        terminal = on.terminal(rows=with_["rows"], cols=with_["cols"])
        try:
            await settle(terminal.write(with_["input"]))
            output = b"".join(await collect(terminal))
        finally:
            await settle(terminal.close())
        return {"output": output.decode("utf-8", "replace"), "exit_code": terminal.exit_code}, None

    async def do_spawn(self, on: Any, with_: dict[str, Any]) -> Any:
        process = await settle(on.processes.start(**with_))
        process.sandbox = on
        return process, process

    async def do_process(self, on: Any, with_: dict[str, Any]) -> Any:
        op = with_.pop("op")
        if op == "get":
            return await settle(on.refresh()), None
        if op == "attach":
            found = await settle(on.sandbox.processes.get(on.id))
            return await settle(found.wait()), None
        return await settle(getattr(on, op)(**with_)), None

    async def do_context(self, on: Any, with_: dict[str, Any]) -> Any:
        context = await settle(on.create_code_context(**with_))
        self.undo.append(context.close)
        return context, context

    async def do_run(self, on: Any, with_: dict[str, Any]) -> Any:
        order, notes = ordered("stdout", "stderr", "result") if with_.pop("stream", False) else ([], {})
        done = await settle(on.run_code(**notes, **with_))
        fields = ("stdout", "stderr", "exit_code", "error", "text")
        result = {field: getattr(done, field) for field in fields}
        return {**result, "results": [one.data for one in done.results], "order": order}, None

    async def do_snapshot(self, on: Any, with_: dict[str, Any]) -> Any:
        snapshot = await settle(on.snapshot())
        self.undo.append(lambda: self.client.snapshots.delete(snapshot))
        return {"id": snapshot}, None

    async def do_snapshots(self, on: Any, with_: dict[str, Any]) -> Any:
        op = with_.pop("op")
        if op == "list":
            return {"ids": [one.id for one in await settle(self.client.snapshots.list(**with_))]}, None
        return await settle(getattr(self.client.snapshots, op)(with_["id"])), None

    async def do_fork(self, on: Any, with_: dict[str, Any]) -> Any:
        if "count" not in with_:
            child = self.owned(await settle(on.fork(**with_)))
            return child, child
        children = [self.owned(one) for one in await settle(on.fork_tree(**with_))]
        return {"children": [wire(one) for one in children], "tree_id": children[0].metadata["fork_tree_id"]}, children

    async def do_promote(self, on: Any, with_: dict[str, Any]) -> Any:
        return await settle(on.promote(**with_)), None

    async def do_explore(self, on: Any, with_: dict[str, Any]) -> Any:
        candidates = [Candidate(**one) for one in with_["candidates"]]
        found = await settle(on.explore(candidates, promote_winner=with_.get("promote", True)))
        if found.winner is not None:
            self.owned(found.winner)
        labels = [one.label for one in found.outcomes]
        return {"winner": found.winner_outcome.label, "reaped": len(found.reaped), "labels": labels}, found.winner

    async def do_volume(self, on: Any, with_: dict[str, Any]) -> Any:
        op = with_.pop("op")
        answer = await settle(getattr(self.client.volumes, op)(**with_))
        if op == "create":
            self.undo.insert(0, lambda: self.client.volumes.delete(with_["name"]))
        return {"names": [one.name for one in answer]} if op == "list" else answer, None

    async def do_token(self, on: Any, with_: dict[str, Any]) -> Any:
        op = with_.pop("op")
        if op == "create":
            with_["name"] = with_.pop("label")
        answer = await settle(getattr(self.client.tokens, op)(**with_))
        if op == "create":
            self.undo.append(lambda: self.client.tokens.revoke(answer.prefix))
        return {"prefixes": [one.prefix for one in answer]} if op == "list" else answer, None

    async def do_show(self, on: Any, with_: dict[str, Any]) -> Any:
        what = with_.pop("what")
        if what == "me":
            client = self.client_class(api_key=with_.get("api_key"))
            try:
                return await settle(client.me()), None
            finally:
                await settle(client.close())
        if what == "set_network_default":
            return await settle(self.client.set_network_default(with_["network"])), None
        if what == "templates":
            return {"names": [one.name for one in await settle(self.client.templates.list())]}, None
        if what == "audit":
            return {"paths": [one.path for one in await settle(self.client.audit())]}, None
        if what == "events":
            events = await settle(on.events())
            assert (await first(on.follow_events())).type == events[0].type
            return {"types": [one.type for one in events]}, None
        if what == "ports":
            return {"ports": [one.port for one in await settle(on.ports())]}, None
        if what == "add_port":
            return {"ports": [(await settle(on.add_port(**with_))).port]}, None
        if what == "preview_url":
            # As browsers do, curl knows where names under localhost lead without asking anybody.
            seen = subprocess.run(
                ["curl", "-sSf", on.preview_url(**with_)], check=True, capture_output=True, text=True, timeout=60
            )
            return {"text": seen.stdout}, None
        if what == "logs":
            return {"text": "\n".join(await collect(on.logs()))}, None
        return await settle(getattr(on, what)(**with_)), None


def ordered(*streams: str) -> tuple[list[str], dict[str, Callable[[Any], None]]]:
    """Callbacks, and the order in which they are called: each stream once per run of equal ones."""
    order: list[str] = []

    def note(stream: str) -> None:
        if not order or order[-1] != stream:
            order.append(stream)

    return order, {f"on_{stream}": (lambda given, stream=stream: note(stream)) for stream in streams}


async def first(items: Any) -> Any:
    """The first item of an iterator of either client, which is then closed."""
    if hasattr(items, "__anext__"):
        try:
            return await items.__anext__()
        finally:
            await items.aclose()
    try:
        return next(items)
    finally:
        items.close()


ABSENT = object()


def look_up(value: Any, path: str) -> Any:
    """A field by its dotted path."""
    parts = path.split(".")
    for index, part in enumerate(parts):
        rest = ".".join(parts[index:])
        if isinstance(value, dict) and rest in value:
            return value[rest]  # Keys such as "a.txt" have dots of their own.
        if isinstance(value, dict):
            value = value.get(part, ABSENT)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value


MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "contains": lambda value, wanted: wanted in value,
    "lacks": lambda value, wanted: wanted not in value,
    "matches": lambda value, wanted: re.search(wanted, value) is not None,
    "length": lambda value, wanted: len(value) == wanted,
    "at_least": lambda value, wanted: value >= wanted,
    "set": lambda value, wanted: (value is not ABSENT and value is not None) == wanted,
    "not": lambda value, wanted: value != wanted,
}


def check(path: str, value: Any, wanted: Any) -> None:
    """Whether a field is what it must be."""
    matcher: Optional[str] = None
    if isinstance(wanted, dict) and len(wanted) == 1:
        matcher = next((key for key in wanted if key in MATCHERS), None)
    shown = "absent" if value is ABSENT else repr(value)[:2000]
    if matcher is None:
        assert value == wanted, f"{path} is {shown}, not {wanted!r}"
    else:
        assert value is not ABSENT or matcher == "set", f"{path} is absent"
        assert MATCHERS[matcher](value, wanted[matcher]), f"{path} is {shown}, not {wanted!r}"

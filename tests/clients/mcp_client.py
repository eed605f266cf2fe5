"""Drives both MCP servers with the stock client from PyPI (`mcp`, 1.x and 2.x), over streamable HTTP
and through `pandastack mcp`.

Usage: mcp_client.py BASE_URL TEMPLATE PROGRAM    (the key is in PANDASTACK_API_KEY)

Ends with 0 and one line of JSON if everything was as it should be.
"""

import asyncio
import base64
import json
import os
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

MAJOR = int(version("mcp").split(".")[0])
HEADERS = {"Authorization": f"Bearer {os.environ['PANDASTACK_API_KEY']}"}
PATIENCE_SECONDS = 120
# A picture of one point.
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@asynccontextmanager
async def connect_program(program, base):
    """A client of the program that speaks the protocol over its standard input and output."""
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    variables = {**os.environ, "PANDASTACK_API": base}
    server = StdioServerParameters(command=program, args=["mcp"], env=variables)
    if MAJOR >= 2:
        from mcp import Client

        async with Client(stdio_client(server)) as client:
            yield client, client.server_info.name
    else:
        from mcp import ClientSession

        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            hello = await session.initialize()
            yield session, hello.serverInfo.name


@asynccontextmanager
async def connect(url):
    """A client after its handshake, and the name the server gave itself."""
    if MAJOR >= 2:
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async with httpx2.AsyncClient(headers=HEADERS, timeout=PATIENCE_SECONDS) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                yield client, client.server_info.name
    else:
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        async with streamablehttp_client(url, headers=HEADERS, timeout=PATIENCE_SECONDS) as (read, write, _):
            async with ClientSession(read, write) as session:
                hello = await session.initialize()
                await session.send_ping()
                yield session, hello.serverInfo.name


async def whole(client, name, /, **arguments):
    """A tool's whole result, and what it says to programs."""
    while True:
        try:
            result = await client.call_tool(name, arguments)
            break
        except Exception as error:
            # A quick host reaches what one workspace may call in a minute.
            if "too many tool calls" not in str(error):
                raise
            await asyncio.sleep(1)
    return result, result.structured_content if MAJOR >= 2 else result.structuredContent


async def call(client, name, /, **arguments):
    """A tool's text, and whether it is bad news."""
    result, _ = await whole(client, name, **arguments)
    assert len(result.content) == 1 and result.content[0].type == "text", result
    return result.content[0].text, result.is_error if MAJOR >= 2 else result.isError


async def picture(client, name, /, **arguments):
    """The one picture of a result, as bytes, and the text before it."""
    result, _ = await whole(client, name, **arguments)
    assert [part.type for part in result.content] == ["text", "image"], result
    image = result.content[1]
    assert (image.mime_type if MAJOR >= 2 else image.mimeType) == "image/png", image
    return base64.b64decode(image.data, validate=True), result.content[0].text


async def ask(client, name, /, **arguments):
    """A tool's answer as JSON; bad news is a failure."""
    text, bad = await call(client, name, **arguments)
    assert not bad, f"{name}: {text}"
    return json.loads(text)


async def tools(client):
    listed = (await client.list_tools()).tools
    for tool in listed:
        schema = tool.input_schema if MAJOR >= 2 else tool.inputSchema
        assert tool.description and schema["type"] == "object", tool
    return {tool.name for tool in listed}


async def workspace(base, template):
    async with connect(f"{base}/mcp") as (client, name):
        assert name == "pandastack", name
        names = await tools(client)
        needed = "create_sandbox list_sandboxes delete_sandbox run_command read_file write_file list_dir list_templates"
        assert names >= set(needed.split()), names
        assert template in [known["name"] for known in await ask(client, "list_templates")]
        made = await ask(
            client, "create_sandbox", template=template, metadata={"by": "mcp"}, name="mcp-made", persistent=True, env={"WHO": "mcp"}
        )
        sandbox = made["id"]
        assert (made["name"], made["persistent"], made["env_names"]) == ("mcp-made", True, ["WHO"]), made
        changed = await ask(
            client, "update_sandbox", sandbox_id="mcp-made", name="", ttl_seconds=900, metadata={"by": None, "for": "test"}
        )
        assert "name" not in changed and changed["ttl_seconds"] == 900 and changed["metadata"]["for"] == "test", changed
        assert "by" not in (await ask(client, "get_sandbox", sandbox_id=sandbox))["metadata"]
        assert sandbox in [known["id"] for known in await ask(client, "list_sandboxes")]

        ran = await ask(client, "run_command", sandbox_id=sandbox, command="echo out; echo err >&2; exit 3")
        assert (ran["stdout"], ran["stderr"], ran["exit_code"]) == ("out\n", "err\n", 3), ran
        late, bad = await call(client, "run_command", sandbox_id=sandbox, command="echo early; sleep 60", timeout_seconds=1)
        assert bad and "timeout" in late and json.loads(late)["partial"]["stdout"] == "early\n", late
        assert "start_process" in json.loads(late)["hint"], late
        _, structured = await whole(client, "run_command", sandbox_id=sandbox, command="echo one")
        assert structured["stdout"] == "one\n", structured
        _, structured = await whole(client, "list_sandboxes")
        assert sandbox in [known["id"] for known in structured["items"]], structured

        where = await ask(
            client, "run_command", sandbox_id=sandbox, command="pwd; echo $WHO $TOO", cwd="/tmp", env={"TOO": "one"}
        )
        assert where["stdout"] == "/tmp\nmcp one\n", where

        loop = "i=0; while :; do echo line $i; i=$((i + 1)); sleep 0.1; done"
        process = (await ask(client, "start_process", sandbox_id=sandbox, command=loop, cwd="/tmp", tag="loop"))["id"]
        assert process in [one["id"] for one in await ask(client, "list_processes", sandbox_id=sandbox) if one["running"]]
        logs = {"stdout": "", "next_stdout_offset": 0}
        while "line 1\n" not in logs["stdout"]:
            await asyncio.sleep(0.5)
            logs = await ask(client, "process_logs", sandbox_id=sandbox, process_id=process)
        offset = logs["next_stdout_offset"]
        assert logs["running"] and offset == len(logs["stdout"]), logs
        await ask(client, "stop_process", sandbox_id=sandbox, process_id=process)
        while logs["running"]:
            await asyncio.sleep(0.5)
            logs = await ask(client, "process_logs", sandbox_id=sandbox, process_id=process, stdout_offset=offset)
        assert logs["exit_code"] == 143 and logs["stdout_offset"] == offset and "line 0" not in logs["stdout"], logs

        written = await ask(client, "write_file", sandbox_id=sandbox, path="/workspace/a/b.txt", content="héllo 🐼\n")
        assert written["bytes"] == len("héllo 🐼\n".encode()), written
        assert await call(client, "read_file", sandbox_id=sandbox, path="/workspace/a/b.txt") == ("héllo 🐼\n", False)
        listed = await ask(client, "list_dir", sandbox_id=sandbox)
        assert [entry["name"] for entry in listed["entries"]] == ["a"], listed

        first = await ask(client, "run_code", sandbox_id=sandbox, code="n=41", language="bash")
        second = await ask(client, "run_code", sandbox_id=sandbox, code="echo $((n + 1))", language="bash")
        assert second["stdout"] == "42\n" and second["context_id"] == first["context_id"], second

        # What code shows as a picture, and a file that is one, can be looked at.
        await ask(client, "write_file", sandbox_id=sandbox, path="/tmp/dot.b64", content=DOT)
        await ask(client, "run_command", sandbox_id=sandbox, command="base64 -d /tmp/dot.b64 > /tmp/dot.png")
        dot = base64.b64decode(DOT)
        assert (await picture(client, "read_file", sandbox_id=sandbox, path="/tmp/dot.png"))[0] == dot
        code = "class Dot:\n    def _repr_png_(self):\n        return open('/tmp/dot.png', 'rb').read()\nDot()"
        shown, text = await picture(client, "run_code", sandbox_id=sandbox, code=code, timeout_seconds=60)
        assert shown == dot and DOT not in text, text

        before = len(await ask(client, "list_sandboxes"))
        ways = ["seq 3 > /tmp/found", "seq 7 > /tmp/found", "exit 1"]
        result, found = await whole(
            client, "explore", sandbox_id=sandbox, commands=ways, score_command="wc -l < /tmp/found"
        )
        assert [branch["score"] for branch in found["branches"]] == [7, 3, None], found
        assert found["branches"][0]["command"] == ways[1] and len(found["deleted"]) == 2, found
        assert found["winner"] in result.content[0].text, result
        best = await ask(client, "run_command", sandbox_id=found["winner"], command="tail -n 1 /tmp/found")
        assert best["stdout"] == "7\n", best
        await ask(client, "delete_sandbox", sandbox_id=found["winner"])
        assert len(await ask(client, "list_sandboxes")) == before

        fork = await ask(client, "fork_sandbox", sandbox_id=sandbox, count=1)
        child = fork["children"][0]["id"]
        ran = await ask(client, "run_code", sandbox_id=child, code="echo child", language="bash")
        assert ran["stdout"] == "child\n", ran
        snapshot = await ask(client, "create_snapshot", sandbox_id=child)
        await ask(client, "delete_sandbox", sandbox_id=child)
        again = (await ask(client, "create_sandbox", from_snapshot=snapshot["id"]))["id"]
        assert (await call(client, "read_file", sandbox_id=again, path="/workspace/a/b.txt"))[0] == "héllo 🐼\n"
        await ask(client, "delete_sandbox", sandbox_id=again)
        assert snapshot["id"] in [known["id"] for known in await ask(client, "list_snapshots")]
        await ask(client, "delete_snapshot", snapshot_id=snapshot["id"])
        assert snapshot["id"] not in [known["id"] for known in await ask(client, "list_snapshots")]

        assert (await ask(client, "hibernate_sandbox", sandbox_id=sandbox))["status"] == "hibernated"
        assert (await ask(client, "wake_sandbox", sandbox_id=sandbox))["status"] == "running"
        link = await ask(client, "expose_port", sandbox_id=sandbox, port=8000, ttl_seconds=60)
        assert link["url"].startswith(base), link

        # What a service refuses is a result that says why.
        for name, arguments in [
            ("run_command", {"sandbox_id": "00000000-0000-4000-8000-000000000000", "command": "true"}),
            ("run_command", {"sandbox_id": sandbox, "command": ""}),
            ("read_file", {"sandbox_id": sandbox, "path": "/nowhere"}),
            ("create_sandbox", {"template": "no-such-template"}),
            ("fork_sandbox", {"sandbox_id": sandbox, "count": 10**6}),
            ("run_command", {"sandbox_id": sandbox, "command": "true", "timeout_ms": 1000}),
            ("explore", {"sandbox_id": sandbox, "commands": ["true"]}),
        ]:
            text, bad = await call(client, name, **arguments)
            assert bad and json.loads(text)["error"], (name, text)
            hint = json.loads(text).get("hint") or ""
            assert not any(foreign in hint for foreign in ("/v1", "--", "pandastack ")), (name, text)
        return sandbox


async def inside(base, sandbox):
    async with connect(f"{base}/v1/sandboxes/{sandbox}/mcp") as (client, name):
        assert name == "pandastack-sandbox", name
        names = "shell run_code read_file write_file list_dir start_process list_processes process_logs stop_process"
        assert await tools(client) == set(names.split())
        text, bad = await call(client, "shell", command="echo out; echo err >&2")
        assert (text, bad) == ("out\n[stderr]\nerr\n[exit code 0]", False), text
        text, bad = await call(client, "shell", command="exit 4")
        assert bad and text.endswith("[exit code 4]"), text
        for time in ({"timeout_seconds": 5}, {"timeout_ms": 5000}):
            text, bad = await call(client, "shell", command="echo early; sleep 60", **time)
            assert bad and text.startswith("early\n") and "timeout" in text, text
        text, bad = await call(client, "shell", command="pwd; echo $TOO", cwd="/tmp", env={"TOO": "two"})
        assert (text, bad) == ("/tmp\ntwo\n[exit code 0]", False), text
        process = (await ask(client, "start_process", command="echo started"))["id"]
        while (logs := await ask(client, "process_logs", process_id=process))["running"]:
            await asyncio.sleep(0.5)
        assert (logs["stdout"], logs["exit_code"]) == ("started\n", 0), logs
        ran = await ask(client, "run_code", code="echo $((6 * 7))", language="bash")
        assert ran["stdout"] == "42\n", ran
        await ask(client, "write_file", path="/tmp/x", content="x")
        assert await call(client, "read_file", path="/tmp/x") == ("x", False)
        await call(client, "shell", command="printf '\\377\\376' > /tmp/binary")
        assert (await call(client, "read_file", path="/tmp/binary"))[0] == "[binary; base64]\n//4="
        listed = await ask(client, "list_dir", path="/workspace/a")
        assert [entry["name"] for entry in listed["entries"]] == ["b.txt"], listed


async def over_standard_input(program, base, sandbox):
    async with connect_program(program, base) as (client, name):
        assert name == "pandastack", name
        assert "explore" in await tools(client)
        commands = [ask(client, "run_command", sandbox_id=sandbox, command=f"echo {n}") for n in range(3)]
        assert [ran["stdout"] for ran in await asyncio.gather(*commands)] == ["0\n", "1\n", "2\n"]
        text, bad = await call(client, "read_file", sandbox_id=sandbox, path="/nowhere")
        assert bad and json.loads(text)["code"] == "not_found", text


async def main():
    base, template, program = sys.argv[1:]
    sandbox = await workspace(base, template)
    await inside(base, sandbox)
    await over_standard_input(program, base, sandbox)
    async with connect(f"{base}/v1/mcp") as (client, _):
        await ask(client, "delete_sandbox", sandbox_id=sandbox)
    print(json.dumps({"mcp": version("mcp"), "ok": True}))


asyncio.run(main())

"""Drives a server with the published Python SDK, as its users would.

Reads PANDASTACK_API and PANDASTACK_API_KEY. Each check prints its name; the first that fails ends the script.
"""

import base64
import os
import sys
import tempfile
import time

import pandastack
import requests
from pandastack import Client, Sandbox
from pandastack.exceptions import (
    AuthError,
    BadRequestError,
    CommandFailed,
    NotFoundError,
    SandboxTimeout,
)
from pandastack.explore import Candidate

# Guests may be emulated and the host busy: the client's own patience is for real machines.
client = Client(timeout=120)
pandastack.sandbox.set_default_client(client)


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def until(what, condition):
    """Asks as often as a server lets one client ask, not more."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def defaults_and_exec():
    assert client.sandboxes.list() == []
    assert client.me()["workspace"]
    with Sandbox.create() as sandbox:
        assert sandbox.template == "code-interpreter", sandbox.template
        assert sandbox.exec("echo hi").stdout == "hi\n"
        assert [one.id for one in client.sandboxes.list()] == [sandbox.id]
        assert Sandbox.get(sandbox.id).status == "running"
        failed = sandbox.exec("echo no >&2; exit 9")
        assert (failed.exit_code, failed.stderr) == (9, "no\n")
        assert raises(CommandFailed, lambda: sandbox.exec("exit 9", check=True)).exit_code == 9
        assert len(sandbox.exec("head -c 1048576 /dev/zero | tr '\\0' x").stdout) == 1 << 20
        assert sandbox.exec("printf 'a\\377b'").stdout == "a\ufffdb"
        raises(SandboxTimeout, lambda: sandbox.exec("sleep 600", timeout_seconds=1))
        begun = time.monotonic()
        assert sandbox.exec("setsid sleep 600 >/dev/null 2>&1 & echo launched").stdout == "launched\n"
        assert time.monotonic() - begun < 100
        assert sandbox.commands.run("echo via commands").stdout == "via commands\n"
        assert sandbox.run_code("print(6 * 7)").stdout == "42\n"
        assert sandbox.run_code("echo $((6 * 7))", language="bash").stdout == "42\n"
    raises(NotFoundError, lambda: client.sandboxes.get(sandbox.id))
    assert client.sandboxes.list() == []


def streams(sandbox):
    seen = []
    code = sandbox.exec_stream(
        "echo one; sleep 0.3; echo two >&2; sleep 0.3; printf '\\360\\237\\220\\274 \\342\\200\\250 \\302\\205 end\\n'; exit 5",
        on_stdout=lambda text: seen.append(("out", text)),
        on_stderr=lambda text: seen.append(("err", text)),
    )
    assert code == 5
    assert seen[:2] == [("out", "one\n"), ("err", "two\n")], seen
    assert "".join(text for _, text in seen[2:]) == "🐼 \u2028 \x85 end\n", seen
    raises(SandboxTimeout, lambda: sandbox.exec_stream("sleep 600", timeout_seconds=1))


def files(sandbox):
    fs = sandbox.filesystem
    every_byte = bytes(range(256)) * 300
    fs.write("/workspace/deep/down/binary", every_byte)
    assert fs.read("/workspace/deep/down/binary") == every_byte
    fs.write("/workspace/text", "grüße 🐼")
    assert fs.read("/workspace/text").decode() == "grüße 🐼"
    raises(NotFoundError, lambda: fs.read("/workspace/nonesuch"))
    assert fs.exists("/workspace/text") and not fs.exists("/workspace/nonesuch")
    sandbox.exec("mkdir /workspace/empty", check=True)
    assert fs.listdir("/workspace/empty") == []
    entries = {entry.name: entry for entry in fs.listdir("/workspace")}
    assert entries["deep"].is_dir and entries["text"].size == len("grüße 🐼".encode())
    assert fs.stat("/workspace/text").path == "/workspace/text"
    walked = [root for root, _, _ in fs.walk("/workspace")]
    assert "/workspace/deep/down" in walked, walked
    large = os.urandom(1 << 20) * 100
    with tempfile.TemporaryDirectory() as directory:
        there, back = os.path.join(directory, "there"), os.path.join(directory, "back")
        with open(there, "wb") as file:
            file.write(large)
        fs.upload(there, "/workspace/large")
        fs.download("/workspace/large", back)
        with open(back, "rb") as file:
            assert file.read() == large
    sandbox.exec("rm /workspace/large", check=True)


def sleep_and_wake(sandbox):
    sandbox.exec("echo memory > /run/memory; setsid sleep 9999 >/dev/null 2>&1 & echo $! > /run/pid", check=True)
    sandbox.pause()
    sandbox.resume()
    sandbox.hibernate()
    assert sandbox.refresh().status == "hibernated"
    assert sandbox.exec("cat /run/memory; kill -0 $(cat /run/pid) && echo alive").stdout == "memory\nalive\n"
    sandbox.hibernate()
    sandbox.wake()
    sandbox.wake()
    assert sandbox.set_ttl(1234)["ttl_seconds"] == 1234
    assert sandbox.set_persistent(True)["persistent"] is True
    lifecycle = sandbox.lifecycle()
    assert (lifecycle["ttl_seconds"], lifecycle["persistent"]) == (1234, True)
    sandbox.set_persistent(False)


def snapshots(sandbox):
    sandbox.filesystem.write("/workspace/disk", b"of the parent")
    snapshot = sandbox.snapshot()
    assert isinstance(snapshot, str)
    assert snapshot in [one["id"] for one in client.snapshots.list()]
    assert [one["id"] for one in client.snapshots.list(sandbox_id=sandbox.id)] == [snapshot]
    assert client.snapshots.get(snapshot)["sandbox_id"] == sandbox.id
    sandbox.kill()
    child = client.sandboxes.create(from_snapshot=snapshot)
    assert child.filesystem.read("/workspace/disk") == b"of the parent"
    assert child.exec("cat /run/memory; kill -0 $(cat /run/pid) && echo alive").stdout == "memory\nalive\n"
    client.snapshots.delete(snapshot)
    raises(NotFoundError, lambda: client.snapshots.get(snapshot))
    return child


def forks(sandbox):
    plain = sandbox.fork()
    named = sandbox.fork(metadata={"branch": "one"})
    assert named.metadata["branch"] == "one" and plain.metadata["fork_parent_id"] == sandbox.id
    for child in (plain, named, sandbox):
        assert child.exec("cat /run/memory").stdout == "memory\n"
    plain.kill()
    named.kill()
    tree = sandbox.fork_tree(4)
    assert len({child.id for child in tree}) == 4
    tree[2].exec("echo chosen > /run/memory", check=True)
    tree_id = tree[2].metadata["fork_tree_id"]
    chosen = tree[2].promote(cleanup_siblings=True, tree_id=tree_id)
    assert chosen["winner"] == tree[2].id and len(chosen["deleted"]) == 3, chosen
    assert tree[2].promote(cleanup_siblings=True)["deleted"] == []
    assert sorted(one.id for one in client.sandboxes.list()) == sorted([sandbox.id, tree[2].id])
    assert tree[2].exec("cat /run/memory").stdout == "chosen\n"
    tree[2].kill()
    result = sandbox.explore(
        [Candidate.shell("bad", "exit 1"), Candidate.shell("good", "echo made > /root/made", env={"A": "b c"})]
    )
    assert result.winner_outcome.label == "good" and len(result.reaped) == 1, result
    assert "/root/made" in result.winner_outcome.files_changed, result.winner_outcome
    assert result.winner.filesystem.read("/root/made") == b"made\n"
    result.winner.kill()
    assert [one.id for one in client.sandboxes.list()] == [sandbox.id]


def contexts(sandbox):
    with sandbox.create_code_context() as context:
        context.run_code("x = 41")
        assert context.run_code("x + 1").text == "42"
        spoken = context.run_code("print('grüße 🐼')\nimport sys; print('err', file=sys.stderr)")
        assert (spoken.stdout, spoken.stderr, spoken.exit_code) == ("grüße 🐼\n", "err\n", 0)
        figure = context.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
        assert base64.b64decode(figure.png).startswith(b"\x89PNG"), figure
        table = context.run_code("import pandas\npandas.DataFrame({'größe': [1]})")
        assert "größe" in table.results[-1].html, table
        failed = context.run_code("1 / 0")
        assert "ZeroDivisionError" in failed.error and failed.exit_code != 0, failed
        raises(SandboxTimeout, lambda: context.run_code("import time; time.sleep(600)", timeout_seconds=1))
        assert context.run_code("x").text == "41"
        sandbox.hibernate()
        assert context.run_code("x").text == "41"


def logs_and_ports(sandbox):
    sandbox.exec("echo on the console > /dev/console", check=True)
    until("the console is read", lambda: "on the console" in "\n".join(sandbox.logs()))
    assert any("on the console" in line for line in first_lines(sandbox.logs(follow=True)))
    sandbox.exec("setsid python3 -m http.server 8123 >/dev/null 2>&1 &", check=True)
    until("the port is found", lambda: 8123 in sandbox.preview_urls())
    assert f"://8123-{sandbox.id}." in sandbox.preview_url(8123)


def first_lines(lines):
    for line in lines:
        yield line
        if "on the console" in line:
            return


def volumes_and_keys():
    client.volumes.create("data", 64)
    raises(BadRequestError, lambda: client.volumes.create("data", 64))
    assert [one["name"] for one in client.volumes.list()] == ["data"]
    sandbox = client.sandboxes.create(template="ubuntu-24.04", volumes=[{"name": "data"}], metadata={"a": "b"})
    assert sandbox.metadata["a"] == "b"
    sandbox.exec("mount /dev/vdb /mnt && echo kept > /mnt/file && umount /mnt", check=True)
    raises(BadRequestError, lambda: client.volumes.delete("data"))
    sandbox.kill()
    client.volumes.delete("data")
    raises(NotFoundError, lambda: client.volumes.get("data"))
    token = client.tokens.create("from the SDK", expires_in_days=1)
    assert token.prefix in [one.prefix for one in client.tokens.list()]
    client.tokens.revoke(token.prefix)
    assert token.prefix not in [one.prefix for one in client.tokens.list()]
    names = {one.name if hasattr(one, "name") else one["name"] for one in client.templates.list()}
    assert {"base", "code-interpreter"} <= names, names


def failures():
    raises(AuthError, lambda: Client(api_key="pds_wrong").me())
    raises(NotFoundError, lambda: client.sandboxes.get("00000000-0000-0000-0000-000000000000"))
    raises(BadRequestError, lambda: client.sandboxes.create(template="nonesuch"))
    raises(BadRequestError, lambda: client.sandboxes.create(ttl_seconds=10**12))
    # Beyond the quota.
    room = int(os.environ["QUOTA_SANDBOXES"])
    many = [client.sandboxes.create(template="base") for _ in range(room)]
    assert "limit" in str(raises(BadRequestError, lambda: client.sandboxes.create(template="base")))
    for sandbox in many:
        sandbox.kill()


def main():
    def run(check, *arguments):
        begun = time.monotonic()
        result = check(*arguments)
        print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
        return result

    run(defaults_and_exec)
    sandbox = Sandbox.create(metadata={"whose": "python"})
    run(streams, sandbox)
    run(files, sandbox)
    run(sleep_and_wake, sandbox)
    child = run(snapshots, sandbox)
    run(forks, child)
    run(contexts, child)
    run(logs_and_ports, child)
    child.kill()
    run(volumes_and_keys)
    run(failures)
    assert client.sandboxes.list() == []


def interrupted():
    """Follows a command until the server is killed; whoever started this reads when to do so."""
    sandbox = Sandbox.create(template="base")
    print(sandbox.id, flush=True)
    try:
        code = sandbox.exec_stream("echo begun; sleep 600", on_stdout=lambda text: print(text, end="", flush=True))
    # Half a chunk reaches the SDK as an error of its HTTP library, an end without exit code as one of its own.
    except (pandastack.exceptions.ExecInterrupted, requests.exceptions.ChunkedEncodingError):
        print("interrupted", flush=True)
    else:
        print(f"ended with {code}", flush=True)


if __name__ == "__main__":
    interrupted() if sys.argv[1:] == ["interrupted"] else main()

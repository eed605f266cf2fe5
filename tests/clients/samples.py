"""The product's samples, as they are printed, with a template as the first argument.

Reads PANDASTACK_API and PANDASTACK_API_KEY. Each check prints its name; the first that fails ends the script.
"""

import os
import sys

from pandastack import PandaStack

TEMPLATE = sys.argv[1]
KEY = os.environ["PANDASTACK_API_KEY"]


def a_token_is_given():
    ps = PandaStack(token=KEY)
    sbx = ps.sandbox.create(template=TEMPLATE, ttl_seconds=600, metadata={"task": "sample"})
    result = sbx.exec("python -c 'print(2 ** 10)'", timeout_seconds=30)
    assert (result.stdout, result.exit_code) == ("1024\n", 0), result
    sbx.filesystem.write("/work/note.txt", "a note")
    assert sbx.filesystem.read("/work/note.txt") in ("a note", b"a note")
    child = sbx.fork()
    assert child.id != sbx.id
    assert child.exec("cat /work/note.txt").stdout == "a note"
    assert sbx.metadata["task"] == "sample"
    child.delete()
    sbx.delete()


def keys_come_from_the_environment():
    for variable in ("PANDASTACK_TOKEN", "PANDASTACK_API_KEY"):
        os.environ.pop("PANDASTACK_API_KEY", None)
        os.environ.pop("PANDASTACK_TOKEN", None)
        os.environ[variable] = KEY
        with PandaStack() as client:
            assert client.sandbox is client.sandboxes
            assert client.me().workspace
    os.environ["PANDASTACK_API_KEY"] = KEY
    os.environ.pop("PANDASTACK_TOKEN", None)


def code_keeps_its_state():
    with PandaStack() as client, client.sandboxes.create(template=TEMPLATE) as sandbox:
        sandbox.run_code("x = 1")
        assert sandbox.run_code("x").text == "1"
        pieces = []
        done = sandbox.run_code("print('live'); x + 1", on_stdout=pieces.append, on_result=pieces.append)
        assert done.text == "2" and len(pieces) == 2, (done, pieces)
        assert sandbox.exec(["ls", "-d", "/root"]).stdout == "/root\n"


if __name__ == "__main__":
    for check in (a_token_is_given, keys_come_from_the_environment, code_keeps_its_state):
        check()
        print(check.__name__, flush=True)

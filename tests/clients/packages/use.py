"""Uses the package that is installed, sync and async: makes a sandbox, runs a command in it, deletes it.

Usage: use.py TEMPLATE    (PANDASTACK_API and PANDASTACK_API_KEY say where)
"""

import asyncio
import sys
from importlib.metadata import files, metadata
from pathlib import Path

import pandastack
from pandastack import AsyncPandaStack, PandaStack
from pandastack.exceptions import NotFoundError

TEMPLATE = sys.argv[1]


def the_package():
    """What was installed, and only that."""
    assert Path(pandastack.__file__).is_relative_to(sys.prefix), pandastack.__file__
    assert metadata("pandastack")["Version"] == pandastack.__version__
    installed = [str(file) for file in files("pandastack")]
    assert "pandastack/py.typed" in installed, installed
    assert any(file.endswith("licenses/LICENSE") for file in installed), installed
    mine = [file for file in installed if "__pycache__" not in file and not file.endswith("bin/pandastack-cma")]
    strange = [file for file in mine if not file.startswith(("pandastack/", "pandastack-")) or "test" in file]
    assert not strange, strange


def sync():
    with PandaStack(timeout=120) as client:
        with client.sandboxes.create(template=TEMPLATE) as sandbox:
            assert sandbox.exec("echo hello").stdout == "hello\n"
        try:
            client.sandboxes.get(sandbox.id)
        except NotFoundError:
            return
        raise AssertionError("it is still there")


async def with_await():
    async with AsyncPandaStack(timeout=120) as client:
        async with await client.sandboxes.create(template=TEMPLATE) as sandbox:
            assert (await sandbox.exec("echo hello")).stdout == "hello\n"
        assert sandbox.id not in [one.id for one in await client.sandboxes.list()]


the_package()
sync()
asyncio.run(with_await())
print(f"Python package {pandastack.__version__} works, sync and async")

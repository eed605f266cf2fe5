"""What a session left for the user: files of the guest, copied to a directory of this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .._async.sandbox import AsyncSandbox
from .._local import Arrival, is_program, safe_name
from .._runtime_async import in_thread
from ..exceptions import NotFoundError, PandastackError
from ..models import FileInfo

#: Where the agent leaves them.
DIRECTORY = "/mnt/session/outputs"
#: Most files of a session.
FILES_MAX = 10_000


@dataclass
class Collected:
    """How collecting went."""

    #: Files that are new or have changed.
    files: int = 0
    #: Files that are left out: links, and what is beyond a limit.
    left_out: int = 0


async def collect(sandbox: AsyncSandbox, local: Path, bytes_max: int) -> Collected:
    """Copies what is new. Names come from the guest, so none leads out of ``local``; links are left out."""
    collected = Collected()
    seen = size = 0
    rest = [(DIRECTORY, local)]
    while rest:
        here, there = rest.pop()
        try:
            entries = await sandbox.files.list(here)
        except NotFoundError:
            continue
        for entry in entries:
            try:
                target = there / safe_name(entry.name)
            except PandastackError:
                collected.left_out += 1
                continue
            if entry.link_target is not None:
                collected.left_out += 1
            elif entry.is_dir:
                rest.append((f"{here}/{entry.name}", target))
            elif seen >= FILES_MAX or size + entry.size > bytes_max:
                collected.left_out += 1
            elif not await in_thread(partial(_is_there, entry, target)):
                size += await _fetch(sandbox, f"{here}/{entry.name}", entry, target, bytes_max - size)
                collected.files += 1
            seen += 1
    return collected


def _is_there(entry: FileInfo, target: Path) -> bool:
    try:
        there = target.lstat()
    except OSError:
        return False
    return there.st_size == entry.size and int(there.st_mtime) == entry.mtime


async def _fetch(sandbox: AsyncSandbox, path: str, entry: FileInfo, target: Path, bytes_max: int) -> int:
    await in_thread(partial(target.parent.mkdir, parents=True, exist_ok=True))
    arrival = await in_thread(partial(Arrival, target))
    done = 0
    try:
        async for piece in sandbox.files.stream(path):
            done += len(piece)
            if done > bytes_max:
                raise PandastackError(f"{path} grows while it is read")
            await in_thread(partial(arrival.write, piece))
        await in_thread(partial(arrival.finish, is_program(entry.mode)))
    except BaseException:
        arrival.abandon()
        raise
    # So that it is known again, and not fetched again after the next turn.
    await in_thread(partial(os.utime, target, (entry.mtime, entry.mtime)))
    return done

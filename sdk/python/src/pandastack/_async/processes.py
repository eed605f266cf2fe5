"""Background processes: started, left alone, found again."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Callable, List, Optional, Union

import httpx

from .._config import segment
from .._json import as_list
from ..exceptions import NotFoundError
from ..models import ExecResult, ProcessInfo
from .output import AsyncOutputStream
from .transport import STREAM_TIMEOUT, AsyncTransport


class AsyncProcess:
    """A process of a sandbox. It goes on without a connection.

    server = await sandbox.processes.start("python3 -m http.server 8000", tag="web")
    ...
    again = await sandbox.processes.get(server.id)   # from another program, another day
    async for piece in again.stream():               # everything from its start on
        print(piece.text, end="")
    """

    def __init__(self, transport: AsyncTransport, path: str, info: ProcessInfo) -> None:
        self._transport = transport
        self._path = f"{path}/{info.id}"
        self.info = info

    def __repr__(self) -> str:
        state = "running" if self.info.running else f"exit_code={self.info.exit_code}"
        return f"{type(self).__name__}(id={self.id}, command={self.info.command!r}, {state})"

    @property
    def id(self) -> int:
        """Names it as long as the sandbox lives."""
        return self.info.id

    @property
    def pid(self) -> int:
        """Its pid in the guest."""
        return self.info.pid

    @property
    def tag(self) -> Optional[str]:
        """The name it was started with."""
        return self.info.tag

    @property
    def running(self) -> bool:
        """Whether it ran when the server was last asked: see :meth:`refresh`."""
        return self.info.running

    @property
    def exit_code(self) -> Optional[int]:
        """How it ended, if it had when the server was last asked."""
        return self.info.exit_code

    async def refresh(self) -> AsyncProcess:
        """Asks the server how it is."""
        self.info = ProcessInfo.from_dict(await self._transport.request("GET", self._path))
        return self

    def stream(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncOutputStream:
        """Follows its output, from the beginning or from so many bytes on. What the sandbox no longer holds is skipped."""

        def opening() -> Awaitable[httpx.Response]:
            return self._transport.open(
                "GET",
                f"{self._path}/output",
                params={"stdout_offset": stdout_offset, "stderr_offset": stderr_offset},
                headers={"Accept": "text/event-stream"},
                timeout=self._transport.patience(STREAM_TIMEOUT),
            )

        return AsyncOutputStream(self._transport, opening)

    async def wait(
        self,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
    ) -> ExecResult:
        """Waits for its end; gives all its output."""
        return await self.stream().result(on_stdout, on_stderr)

    async def write(self, data: str, *, close: bool = False) -> None:
        """Writes to its standard input, if it was started with ``stdin=True``; ``close`` ends that afterwards."""
        await self._transport.request("POST", f"{self._path}/input", json={"data": data, "close": close})

    async def close_stdin(self) -> None:
        """Ends its standard input."""
        await self.write("", close=True)

    async def signal(self, signal: Union[int, str] = "SIGTERM") -> None:
        """Signals it and everything it started."""
        await self._transport.request("POST", f"{self._path}/signal", json={"signal": signal})

    async def kill(self) -> None:
        """Ends it and everything it started, at once."""
        await self.signal("SIGKILL")


class AsyncProcesses:
    """The processes of a sandbox: ``sandbox.processes``."""

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/processes"

    async def start(
        self,
        cmd: Union[str, Sequence[str]],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: bool = False,
        tag: Optional[str] = None,
        timeout_seconds: Optional[float] = None,
        user: Optional[str] = None,
    ) -> AsyncProcess:
        """Starts a process and does not wait for it.

        :param cmd: a line for the shell, or a program with its arguments.
        :param stdin: whether it can be written to.
        :param tag: a name to find it by.
        """
        body: dict[str, Any] = {"cmd": cmd} if isinstance(cmd, str) else {"argv": list(cmd)}
        options = {
            "cwd": cwd,
            "env": None if env is None else dict(env),
            "stdin": stdin or None,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "user": user,
        }
        body.update({key: value for key, value in options.items() if value is not None})
        answer = await self._transport.request("POST", self._path, json=body, warm_up=True)
        return AsyncProcess(self._transport, self._path, ProcessInfo.from_dict(answer))

    async def list(self) -> List[AsyncProcess]:
        """Processes that run, and some that ended."""
        answer = as_list(await self._transport.request("GET", self._path))
        return [AsyncProcess(self._transport, self._path, ProcessInfo.from_dict(one)) for one in answer]

    async def get(self, process: Union[int, str]) -> AsyncProcess:
        """The process of that id (a number), or the newest of that tag."""
        if isinstance(process, int):
            answer = await self._transport.request("GET", f"{self._path}/{segment(process)}")
            return AsyncProcess(self._transport, self._path, ProcessInfo.from_dict(answer))
        tagged = [one for one in await self.list() if one.tag == process]
        if not tagged:
            raise NotFoundError(f"no process has the tag {process!r}", code="not_found")
        return max(tagged, key=lambda one: one.id)

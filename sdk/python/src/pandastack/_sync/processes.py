# Generated from ../_async/processes.py by scripts/generate_sync.py. Do not edit.
"""Background processes: started, left alone, found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, List, Optional, Union

import httpx

from .._config import segment
from .._json import as_list
from ..exceptions import NotFoundError
from ..models import ExecResult, ProcessInfo
from .output import OutputStream
from .transport import STREAM_TIMEOUT, Transport


class Process:
    """A process of a sandbox. It goes on without a connection.

    server = sandbox.processes.start("python3 -m http.server 8000", tag="web")
    ...
    again = sandbox.processes.get(server.id)   # from another program, another day
    for piece in again.stream():               # everything from its start on
        print(piece.text, end="")
    """

    def __init__(self, transport: Transport, path: str, info: ProcessInfo) -> None:
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

    def refresh(self) -> Process:
        """Asks the server how it is."""
        self.info = ProcessInfo.from_dict(self._transport.request("GET", self._path))
        return self

    def stream(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> OutputStream:
        """Follows its output, from the beginning or from so many bytes on. What the sandbox no longer holds is skipped."""

        def opening() -> httpx.Response:
            return self._transport.open(
                "GET",
                f"{self._path}/output",
                params={"stdout_offset": stdout_offset, "stderr_offset": stderr_offset},
                headers={"Accept": "text/event-stream"},
                timeout=self._transport.patience(STREAM_TIMEOUT),
            )

        return OutputStream(self._transport, opening)

    def wait(
        self,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
    ) -> ExecResult:
        """Waits for its end; gives all its output."""
        return self.stream().result(on_stdout, on_stderr)

    def write(self, data: str, *, close: bool = False) -> None:
        """Writes to its standard input, if it was started with ``stdin=True``; ``close`` ends that afterwards."""
        self._transport.request("POST", f"{self._path}/input", json={"data": data, "close": close})

    def close_stdin(self) -> None:
        """Ends its standard input."""
        self.write("", close=True)

    def signal(self, signal: Union[int, str] = "SIGTERM") -> None:
        """Signals it and everything it started."""
        self._transport.request("POST", f"{self._path}/signal", json={"signal": signal})

    def kill(self) -> None:
        """Ends it and everything it started, at once."""
        self.signal("SIGKILL")


class Processes:
    """The processes of a sandbox: ``sandbox.processes``."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/processes"

    def start(
        self,
        cmd: Union[str, Sequence[str]],
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: bool = False,
        tag: Optional[str] = None,
        timeout_seconds: Optional[float] = None,
        user: Optional[str] = None,
    ) -> Process:
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
        answer = self._transport.request("POST", self._path, json=body, warm_up=True)
        return Process(self._transport, self._path, ProcessInfo.from_dict(answer))

    def list(self) -> List[Process]:
        """Processes that run, and some that ended."""
        answer = as_list(self._transport.request("GET", self._path))
        return [Process(self._transport, self._path, ProcessInfo.from_dict(one)) for one in answer]

    def get(self, process: Union[int, str]) -> Process:
        """The process of that id (a number), or the newest of that tag."""
        if isinstance(process, int):
            answer = self._transport.request("GET", f"{self._path}/{segment(process)}")
            return Process(self._transport, self._path, ProcessInfo.from_dict(answer))
        tagged = [one for one in self.list() if one.tag == process]
        if not tagged:
            raise NotFoundError(f"no process has the tag {process!r}", code="not_found")
        return max(tagged, key=lambda one: one.id)

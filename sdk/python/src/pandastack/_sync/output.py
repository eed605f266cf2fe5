# Generated from ../_async/output.py by scripts/generate_sync.py. Do not edit.
"""Output of commands while they run."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Callable, Optional

import httpx

from .._cleanup import set_aside
from .._hints import hint_here
from .._runtime_sync import call
from .._sse import ServerSentEvent
from ..exceptions import ConnectionError, ExecInterrupted, SandboxTimeout, error_from_stream
from ..models import ExecResult, Output
from .transport import Transport


class OutputStream:
    """The output of a command, piece by piece; afterwards ``exit_code`` is set.

        output = sandbox.stream("make test")
        for piece in output:
            print(piece.text, end="")
        print(output.exit_code)

    Leave it early within ``with``, so that the connection is closed.
    """

    def __init__(self, transport: Transport, opening: Callable[[], httpx.Response]) -> None:
        self._transport = transport
        self._opening = opening
        self._events: Optional[Generator[ServerSentEvent, None, None]] = None
        #: Set once the command has ended and its output was read.
        self.exit_code: Optional[int] = None
        #: What may help, when the command failed because the sandbox has no network.
        self.hint: Optional[str] = None

    def __iter__(self) -> OutputStream:
        return self

    def __next__(self) -> Output:
        if self._events is None:
            self._events = self._transport.events(self._opening())
        while self.exit_code is None:
            try:
                event = self._events.__next__()
            except StopIteration:
                raise ExecInterrupted(_INTERRUPTED) from None
            except ConnectionError:
                raise ExecInterrupted(_INTERRUPTED) from None
            data = event.json()
            if event.event in ("stdout", "stderr"):
                return Output(event.event, str(data.get("chunk", "")))
            if event.event == "exit":
                self.exit_code = int(data.get("exit_code", 0))
                self.hint = hint_here(data.get("hint") or None)
                self.close()
            elif event.event == "error":
                self.close()
                raise error_from_stream(data, "the command's stream ended with an error")
        raise StopIteration

    def result(
        self,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
    ) -> ExecResult:
        """Reads to the end, calling back with each piece; gives everything together."""
        stdout: list[str] = []
        stderr: list[str] = []
        try:
            for piece in self:
                if piece.stream == "stdout":
                    stdout.append(piece.text)
                    call(on_stdout, piece.text)
                else:
                    stderr.append(piece.text)
                    call(on_stderr, piece.text)
        except ExecInterrupted as error:
            error.partial_stdout, error.partial_stderr = "".join(stdout), "".join(stderr)
            raise
        except SandboxTimeout as error:
            # What arrived here is all of it; the server keeps only so much for its error.
            error.stdout, error.stderr = "".join(stdout) or error.stdout, "".join(stderr) or error.stderr
            error.truncated = False
            raise
        finally:
            self.close()
        return ExecResult(stdout="".join(stdout), stderr="".join(stderr), exit_code=self.exit_code or 0, hint=self.hint)

    def close(self) -> None:
        """Stops reading."""
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the command's stream was not closed", failure)


_INTERRUPTED = (
    "the stream ended before the command's exit code: the connection or the sandbox went away. "
    "The command may have succeeded, failed, or still be running"
)

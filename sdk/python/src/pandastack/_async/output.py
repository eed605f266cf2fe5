"""Output of commands while they run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from types import TracebackType
from typing import Callable, Optional

import httpx

from .._runtime_async import call
from .._sse import ServerSentEvent
from ..exceptions import ConnectionError, ExecInterrupted, SandboxTimeout, ServerError
from ..models import ExecResult, Output
from .transport import AsyncTransport


class AsyncOutputStream:
    """The output of a command, piece by piece; afterwards ``exit_code`` is set.

        output = sandbox.stream("make test")
        async for piece in output:
            print(piece.text, end="")
        print(output.exit_code)

    Leave it early within ``async with``, so that the connection is closed.
    """

    def __init__(self, transport: AsyncTransport, opening: Callable[[], Awaitable[httpx.Response]]) -> None:
        self._transport = transport
        self._opening = opening
        self._events: Optional[AsyncGenerator[ServerSentEvent, None]] = None
        #: Set once the command has ended and its output was read.
        self.exit_code: Optional[int] = None

    def __aiter__(self) -> AsyncOutputStream:
        return self

    async def __anext__(self) -> Output:
        if self._events is None:
            self._events = self._transport.events(await self._opening())
        while self.exit_code is None:
            try:
                event = await self._events.__anext__()
            except StopAsyncIteration:
                raise ExecInterrupted(_INTERRUPTED) from None
            except ConnectionError as error:
                raise ExecInterrupted(_INTERRUPTED) from error
            data = event.json()
            if event.event in ("stdout", "stderr"):
                return Output(event.event, str(data.get("chunk", "")))
            if event.event == "exit":
                self.exit_code = int(data.get("exit_code", 0))
                await self.close()
            elif event.event == "error":
                text = str(data.get("error") or "the command's stream ended with an error")
                await self.close()
                raise SandboxTimeout(text, code="timeout") if "timeout" in text.lower() else ServerError(text)
        raise StopAsyncIteration

    async def result(
        self,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
    ) -> ExecResult:
        """Reads to the end, calling back with each piece; gives everything together."""
        stdout: list[str] = []
        stderr: list[str] = []
        try:
            async for piece in self:
                if piece.stream == "stdout":
                    stdout.append(piece.text)
                    await call(on_stdout, piece.text)
                else:
                    stderr.append(piece.text)
                    await call(on_stderr, piece.text)
        except ExecInterrupted as error:
            raise ExecInterrupted(error.message, partial_stdout="".join(stdout), partial_stderr="".join(stderr)) from error
        finally:
            await self.close()
        return ExecResult(stdout="".join(stdout), stderr="".join(stderr), exit_code=self.exit_code or 0)

    async def close(self) -> None:
        """Stops reading."""
        if self._events is not None:
            await self._events.aclose()

    async def __aenter__(self) -> AsyncOutputStream:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()


_INTERRUPTED = (
    "the stream ended before the command's exit code: the connection or the sandbox went away. "
    "The command may have succeeded, failed, or still be running"
)

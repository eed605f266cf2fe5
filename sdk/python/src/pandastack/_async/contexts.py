"""Code contexts: interpreters that keep their state from cell to cell."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Optional

from .._cleanup import set_aside
from .._config import segment
from .._execution import Execution, Result, results_of
from .._retry import took_too_long
from .._runtime_async import call
from ..exceptions import ConnectionError, ExecInterrupted, PandastackError, SandboxTimeout, ServerError, error_from_stream
from ..models import ContextInfo
from .transport import STREAM_TIMEOUT, AsyncTransport

#: What the server allows a cell when nothing is said.
CELL_SECONDS = 30.0


class AsyncCodeContext:
    """An interpreter that keeps its state from cell to cell, over hibernation too.

        async with await sandbox.create_code_context() as context:
            await context.run_code("x = 41")
            print((await context.run_code("x + 1")).text)   # 42

    Results display themselves in notebooks: pictures, tables, and so on.
    """

    def __init__(self, transport: AsyncTransport, sandbox_path: str, info: ContextInfo) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/repl/sessions/{segment(info.id)}"
        self.info = info

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, language={self.language!r})"

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def language(self) -> str:
        """Its language."""
        return self.info.language

    async def run_code(
        self,
        code: str,
        timeout_seconds: Optional[float] = None,
        *,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        on_result: Optional[Callable[[Result], object]] = None,
    ) -> Execution:
        """Runs a cell. One that raises is no exception here: see ``error``.

            await context.run_code("for n in range(3): print(n)", on_stdout=print)

        :param on_stdout: called with each piece of output as it arrives; so is ``on_stderr``.
        :param on_result: called with each :class:`Result`, such as a plot, when the cell shows it.
        :raises SandboxTimeout: when it takes longer than ``timeout_seconds`` (30 when absent), with what it wrote until then.
            The context goes on.
        """
        return await run_cell(
            self._transport,
            self._path,
            {"code": code},
            timeout_seconds,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
        )

    async def run(self, code: str, timeout_seconds: Optional[float] = None) -> Execution:
        """The same as :meth:`run_code`."""
        return await self.run_code(code, timeout_seconds)

    async def close(self) -> None:
        """Ends the interpreter. That it is gone already is no error."""
        try:
            await self._transport.request("DELETE", self._path)
        except PandastackError as error:
            if error.status not in (404, 409, 410):
                raise

    async def __aenter__(self) -> AsyncCodeContext:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, f"code context {self.id} was not closed", failure)


async def run_cell(
    transport: AsyncTransport,
    path: str,
    body: dict[str, Any],
    timeout_seconds: Optional[float],
    *,
    on_stdout: Optional[Callable[[str], object]] = None,
    on_stderr: Optional[Callable[[str], object]] = None,
    on_result: Optional[Callable[[Result], object]] = None,
    warm_up: bool = False,
) -> Execution:
    """Runs a cell in the context at ``path``; with callbacks its output is followed while it runs."""
    if timeout_seconds is not None:
        body = {**body, "timeout_ms": int(timeout_seconds * 1000)}
    wait = (CELL_SECONDS if timeout_seconds is None else timeout_seconds) + transport.timeout
    if on_stdout is None and on_stderr is None and on_result is None:
        try:
            answer = await transport.request(
                "POST", f"{path}/run", json=body, timeout=transport.patience(wait), warm_up=warm_up
            )
        except ServerError as error:
            raise too_late(error) or error from None
        return Execution.from_dict(answer)
    response = await transport.open(
        "POST",
        f"{path}/run/stream",
        json=body,
        headers={"Accept": "text/event-stream"},
        timeout=transport.patience(max(wait, STREAM_TIMEOUT)),
        warm_up=warm_up,
    )
    stdout: list[str] = []
    stderr: list[str] = []
    results: list[Result] = []
    events = transport.events(response)
    try:
        async for event in events:
            data = event.json()
            if event.event == "stdout":
                stdout.append(str(data.get("chunk", "")))
                await call(on_stdout, stdout[-1])
            elif event.event == "stderr":
                stderr.append(str(data.get("chunk", "")))
                await call(on_stderr, stderr[-1])
            elif event.event == "result":
                results.extend(results_of([data]))
                await call(on_result, results[-1])
            elif event.event == "exit":
                shown = {"stdout": "".join(stdout), "stderr": "".join(stderr), "results": [one.data for one in results]}
                return Execution.from_dict({**data, **shown})
            elif event.event == "error":
                failure = error_from_stream(data, "the cell's stream ended with an error")
                if isinstance(failure, SandboxTimeout):
                    # What arrived here is all of it; the server keeps only so much for its failure.
                    failure.stdout, failure.stderr = "".join(stdout) or failure.stdout, "".join(stderr) or failure.stderr
                    failure.results, failure.truncated = results or failure.results, False
                raise failure
    except ConnectionError:
        pass  # As when the stream just ends.
    finally:
        await events.aclose()
    raise ExecInterrupted(_INTERRUPTED, partial_stdout="".join(stdout), partial_stderr="".join(stderr))


def too_late(error: ServerError) -> Optional[SandboxTimeout]:
    """If an error says that a command or cell exceeded its time, an exception with what it wrote until then."""
    return SandboxTimeout.of(error) if took_too_long(error) else None


_INTERRUPTED = (
    "the stream ended before the cell did: the connection or the sandbox went away. "
    "The cell may have succeeded, failed, or still be running"
)

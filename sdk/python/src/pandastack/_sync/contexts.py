# Generated from ../_async/contexts.py by scripts/generate_sync.py. Do not edit.
"""Code contexts: interpreters that keep their state from cell to cell."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Optional

from .._config import segment
from .._execution import Execution
from .._retry import took_too_long
from ..exceptions import PandastackError, SandboxTimeout, ServerError
from ..models import ContextInfo
from .transport import Transport

#: What the server allows a cell when nothing is said.
_CELL_SECONDS = 30.0


class CodeContext:
    """An interpreter that keeps its state from cell to cell, over hibernation too.

        with sandbox.create_code_context() as context:
            context.run_code("x = 41")
            print(context.run_code("x + 1").text)   # 42

    Results display themselves in notebooks: pictures, tables, and so on.
    """

    def __init__(self, transport: Transport, sandbox_path: str, info: ContextInfo) -> None:
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

    def run_code(self, code: str, timeout_seconds: Optional[float] = None) -> Execution:
        """Runs a cell. One that raises is no exception here: see ``error``.

        :raises SandboxTimeout: when it takes longer than ``timeout_seconds`` (30 when absent). The context goes on.
        """
        body: dict[str, Any] = {"code": code}
        if timeout_seconds is not None:
            body["timeout_ms"] = int(timeout_seconds * 1000)
        wait = (_CELL_SECONDS if timeout_seconds is None else timeout_seconds) + self._transport.timeout
        try:
            answer = self._transport.request(
                "POST", f"{self._path}/run", json=body, timeout=self._transport.patience(wait)
            )
        except ServerError as error:
            late = too_late(error)
            if late is not None:
                raise late from error
            raise
        return Execution.from_dict(answer)

    def run(self, code: str, timeout_seconds: Optional[float] = None) -> Execution:
        """The same as :meth:`run_code`."""
        return self.run_code(code, timeout_seconds)

    def close(self) -> None:
        """Ends the interpreter. That it is gone already is no error."""
        try:
            self._transport.request("DELETE", self._path)
        except PandastackError as error:
            if error.status not in (404, 409, 410):
                raise

    def __enter__(self) -> CodeContext:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def too_late(error: ServerError) -> Optional[SandboxTimeout]:
    """If an error says that a command or cell exceeded its time, an exception that says so."""
    if not took_too_long(error):
        return None
    return SandboxTimeout(
        error.message,
        status=error.status,
        code=error.code,
        hint=error.hint,
        request_id=error.request_id,
        body=error.body,
    )

"""What can go wrong.

Every exception is a :class:`PandastackError`. Those that come from an answer of the server carry its ``status``, its stable
``code`` for programs, a ``hint`` where there is one, and the ``request_id`` to find it by in the server's log.

    try:
        client.sandboxes.get("nonesuch")
    except NotFoundError as error:
        print(error, error.code, error.request_id)
"""

from __future__ import annotations

from typing import Any, Optional

from ._execution import Result, results_of
from ._hints import hint_here
from ._json import as_object

#: How much of the last output the text of an error shows.
_TAIL_MOST = 200


class PandastackError(Exception):
    """Anything that this package raises on its own account."""

    def __init__(
        self,
        message: str = "",
        *,
        status: Optional[int] = None,
        code: Optional[str] = None,
        hint: Optional[str] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
        body: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The HTTP status, when the server answered.
        self.status = status
        #: A stable word for programs, such as ``not_found``.
        self.code = code
        #: What may help.
        self.hint = hint
        #: Names the request in the server's log.
        self.request_id = request_id
        #: Seconds the server asked to wait, when it did.
        self.retry_after = retry_after
        #: The decoded body of the answer.
        self.body = body

    @property
    def status_code(self) -> Optional[int]:
        """The same as ``status``."""
        return self.status

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class AuthError(PandastackError):
    """No key was found, or the server does not know it (401)."""


class BadRequestError(PandastackError):
    """The server refused the request (4xx)."""


class PermissionDeniedError(BadRequestError):
    """The key does not allow that (403)."""


class NotFoundError(PandastackError):
    """There is no such thing, or it belongs to another workspace (404)."""


class ConflictError(BadRequestError):
    """It exists already, or is in use (409)."""


class RateLimitError(BadRequestError):
    """Too much or too often (429); ``retry_after`` is set when waiting helps."""


class ServerError(PandastackError):
    """The server failed (5xx)."""


class CapacityError(ServerError):
    """No room now, or the template is being prepared (503 or 507); ``retry_after`` is set when waiting helps."""


class ConnectionError(PandastackError):  # noqa: A001 - the name published clients know
    """The server could not be reached, or the connection broke."""

    #: Whether nothing listened at the server's address: then the request was not sent.
    refused: bool = False


APIConnectionError = ConnectionError


class APITimeoutError(ConnectionError):
    """The server did not answer in time. Whether it did the work is unknown."""


class SandboxTimeout(PandastackError):
    """A command or cell took longer than it was allowed to, and was ended. What it wrote until then is here."""

    def __init__(
        self,
        message: str = "",
        *,
        stdout: str = "",
        stderr: str = "",
        results: Optional[list[Result]] = None,
        truncated: bool = False,
        **answer: Any,
    ) -> None:
        super().__init__(message, **answer)
        #: What it wrote to standard output.
        self.stdout = stdout
        #: What it wrote to standard error.
        self.stderr = stderr
        #: What a cell had shown.
        self.results: list[Result] = results or []
        #: Whether the beginning of the output is missing: the server keeps only so much.
        self.truncated = truncated

    @classmethod
    def of(cls, error: PandastackError) -> SandboxTimeout:
        """From the answer that says so."""
        partial = as_object(as_object(error.body).get("partial"))
        return cls(
            error.message,
            stdout=str(partial.get("stdout") or ""),
            stderr=str(partial.get("stderr") or ""),
            results=results_of(partial.get("results")),
            truncated=bool(partial.get("truncated")),
            status=error.status,
            code=error.code,
            hint=error.hint,
            request_id=error.request_id,
            body=error.body,
        )

    def __str__(self) -> str:
        lines = [self.message]
        lines += [
            f"last of {name}: {_tail(text)}"
            for name, text in (("stdout", self.stdout), ("stderr", self.stderr))
            if text.strip()
        ]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class ExecInterrupted(PandastackError):
    """The stream of a command ended before its exit code: what became of it is unknown.

    ``partial_stdout`` and ``partial_stderr`` hold what did arrive.
    """

    def __init__(self, message: str, *, partial_stdout: str = "", partial_stderr: str = "") -> None:
        super().__init__(message)
        self.partial_stdout = partial_stdout
        self.partial_stderr = partial_stderr


class CommandFailed(PandastackError):
    """A command that was run with ``check=True`` did not exit with 0."""

    def __init__(self, message: str, *, exit_code: int, stdout: str = "", stderr: str = "", hint: Optional[str] = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


class TerminalError(PandastackError):
    """The server ended a terminal with an error."""


class CreateCancelled(PandastackError):
    """The ``cancel`` event was set before a sandbox came to be. The last refusal, if any, is the ``__cause__``."""


class TemplateBuildError(PandastackError):
    """A template could not be prepared."""

    def __init__(self, message: str, *, build: Optional[object] = None) -> None:
        super().__init__(message)
        self.build = build


class ExploreError(PandastackError):
    """``explore()`` had no candidates, too many, or none that did well."""


def error_from_answer(
    status: int, body: Any, *, request_id: Optional[str] = None, retry_after: Optional[float] = None
) -> PandastackError:
    """The exception for a failed answer; ``body`` is its decoded JSON, or its text."""
    kind: type[PandastackError]
    if status == 401:
        kind = AuthError
    elif status == 403:
        kind = PermissionDeniedError
    elif status == 404:
        kind = NotFoundError
    elif status == 409:
        kind = ConflictError
    elif status == 429:
        kind = RateLimitError
    elif status in (503, 507):
        kind = CapacityError
    elif status >= 500:
        kind = ServerError
    else:
        kind = BadRequestError
    return described(kind, body, status=status, request_id=request_id, retry_after=retry_after)


def error_from_stream(data: Any, fallback: str) -> PandastackError:
    """The exception for an event that ends a stream; ``data`` is decoded JSON as in an answer."""
    kinds: dict[Any, type[PandastackError]] = {
        "not_found": NotFoundError,
        "conflict": ConflictError,
        "invalid": BadRequestError,
        "forbidden": PermissionDeniedError,
        "unauthorized": AuthError,
        "quota": RateLimitError,
        "rate_limited": RateLimitError,
        "unavailable": CapacityError,
        "no_space": CapacityError,
    }
    fields = as_object(data)
    code = fields.get("code")
    error = described(kinds.get(code, ServerError), {"error": fallback, **fields})
    if code == "timeout" or (code is None and "timeout" in error.message.lower()):
        late = SandboxTimeout.of(error)
        late.code = late.code or "timeout"
        return late
    return error


def described(
    kind: type[PandastackError],
    body: Any,
    *,
    status: Optional[int] = None,
    request_id: Optional[str] = None,
    retry_after: Optional[float] = None,
) -> PandastackError:
    """An exception with what the body of an answer says."""
    fields = as_object(body)

    def text(key: str) -> Optional[str]:
        value = fields.get(key)
        return value if isinstance(value, str) and value else None

    message = text("error") or text("message") or text("detail")
    if message is None:
        message = body.strip() if isinstance(body, str) and body.strip() else f"the server answered {status}"
    return kind(
        message,
        status=status,
        code=text("code"),
        hint=hint_here(text("hint")),
        request_id=text("request_id") or request_id,
        retry_after=retry_after,
        body=body,
    )


def _tail(text: str) -> str:
    """The last line of an output, for the text of an error."""
    line = text.rstrip().rpartition("\n")[2].strip()
    return line if len(line) <= _TAIL_MOST else f"…{line[-_TAIL_MOST:]}"

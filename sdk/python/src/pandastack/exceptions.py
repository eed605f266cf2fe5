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

from ._json import as_object


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
    """There is no such thing, or it is somebody else's (404)."""


class ConflictError(BadRequestError):
    """It exists already, or is in use (409)."""


class RateLimitError(BadRequestError):
    """Too much or too often (429); ``retry_after`` is set when waiting helps."""


class ServerError(PandastackError):
    """The server failed (5xx)."""


class CapacityError(ServerError):
    """No room now (503 or 507); ``retry_after`` is set when waiting helps."""


class ConnectionError(PandastackError):  # noqa: A001 - the name published clients know
    """The server could not be reached, or the connection broke."""


APIConnectionError = ConnectionError


class APITimeoutError(ConnectionError):
    """The server did not answer in time. Whether it did the work is unknown."""


class SandboxTimeout(PandastackError):
    """A command or cell took longer than it was allowed to, and was killed."""


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

    def __init__(self, message: str, *, exit_code: int, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message)
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
        hint=text("hint"),
        request_id=text("request_id") or request_id,
        retry_after=retry_after,
        body=body,
    )

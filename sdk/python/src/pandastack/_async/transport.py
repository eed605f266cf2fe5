"""Requests: how they are sent, sent again, and what becomes of the answers."""

from __future__ import annotations

import json as json_module
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Callable, Optional, Union

import httpx

from .._config import Config
from .._config import seconds as seconds_of
from .._json import as_list, as_object
from .._progress import ProgressLine
from .._retry import (
    ECHO_DELAY,
    ECHO_METHODS,
    TELL_PROGRESS,
    WARM_UP_DELAY_FIRST,
    WARM_UP_DELAY_MOST,
    CreateRetryEvent,
    CreateWait,
    RestartWait,
    parse_retry_after,
    preparing,
    warming_up,
)
from .._runtime_async import CancelEvent, Socket, call, sleep, wait_cancelled
from .._sse import EventDecoder, ServerSentEvent
from .._version import __version__
from ..exceptions import (
    APITimeoutError,
    AuthError,
    ConnectionError,
    CreateCancelled,
    NotFoundError,
    PandastackError,
    error_from_answer,
)
from ..models import Progress

#: Between two signs of life of a stream.
STREAM_TIMEOUT = 900.0
#: For what takes a machine's while: making, forking, sleeping, snapshots.
MACHINE_TIMEOUT = 180.0

#: Makes a body anew for each time it is sent.
Body = Callable[[], Union[bytes, AsyncIterator[bytes]]]

#: Errors behind an error that are looked at.
_CHAIN_MOST = 32

_log = logging.getLogger("pandastack")


class AsyncTransport:
    """Sends requests for a client."""

    def __init__(
        self,
        config: Config,
        *,
        timeout: float,
        on_create_retry: Optional[Callable[[CreateRetryEvent], object]],
        on_progress: Optional[Callable[[Progress], object]] = None,
        http_client: Optional[httpx.AsyncClient],
    ) -> None:
        self.config = config
        self.timeout = timeout
        self.on_create_retry = on_create_retry
        self.on_progress = on_progress
        self._answered = False
        self._own = http_client is None
        self._http = http_client if http_client is not None else httpx.AsyncClient()

    async def close(self) -> None:
        """Closes the connections, unless they were the user's own."""
        if self._own:
            await self._http.aclose()

    def patience(self, seconds: Optional[float]) -> httpx.Timeout:
        """Waits so long for an answer; without an end when ``None``."""
        return httpx.Timeout(self.timeout, read=seconds)

    def machine_patience(self) -> httpx.Timeout:
        """Waits as long as a machine may need."""
        return self.patience(max(self.timeout, MACHINE_TIMEOUT))

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Optional[Mapping[str, Any]] = None,
        params: Optional[Mapping[str, Any]] = None,
        body: Optional[Body] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[httpx.Timeout] = None,
        warm_up: bool = False,
        root: bool = False,
    ) -> Any:
        """Sends a request; gives its decoded answer, ``None`` when that is empty."""
        response = await self.open(
            method,
            path,
            json=json,
            params=params,
            body=body,
            headers=headers,
            timeout=timeout,
            warm_up=warm_up,
            root=root,
        )
        return await self._decoded(response)

    async def create(
        self,
        path: str,
        json: Optional[Mapping[str, Any]],
        *,
        what: str = "the template",
        cancel: Optional[CancelEvent] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        max_wait_seconds: Optional[float] = None,
    ) -> Any:
        """Asks for sandboxes; again while their template is prepared, and while there is no room for them.

        :param what: the template, for people.
        """
        started = time.monotonic()
        limit = seconds_of("max_create_wait_seconds", max_wait_seconds)
        wait = CreateWait(
            budget=self.config.create_budget,
            stall=self.config.template_stall,
            most=self.config.create_wait_most if limit is None else limit,
            now=started,
        )
        on_progress = on_progress or self.on_progress
        line = ProgressLine(what)
        attempt = 0
        refusal: Optional[PandastackError] = None
        try:
            while True:
                if cancel is not None and cancel.is_set():
                    raise CreateCancelled("cancelled before a sandbox was made") from refusal
                try:
                    response = await self._attempt(
                        "POST", path, json=json, headers=TELL_PROGRESS, timeout=self.machine_patience()
                    )
                    return await self._decoded(response)
                except PandastackError as error:
                    now = time.monotonic()
                    delay = wait.delay(error, now)
                    if delay is None or error.status is None:
                        raise
                    refusal = error
                    attempt += 1
                    progress = preparing(error)
                    event = CreateRetryEvent(
                        "POST", path, attempt, error.status, error.message, delay, now - started, error.retry_after, progress
                    )
                if cancel is not None and cancel.is_set():
                    raise CreateCancelled("cancelled after a refusal") from refusal
                _log.info("refused (%s); asking again in %.1f s", event.error, event.delay_seconds)
                if progress is None:
                    line.clear()
                elif on_progress is not None:
                    await call(on_progress, progress)
                else:
                    line.show(progress, event.elapsed_seconds)
                if self.on_create_retry is not None:
                    self.on_create_retry(event)
                if await wait_cancelled(cancel, event.delay_seconds):
                    raise CreateCancelled("cancelled while waiting for a sandbox") from refusal
        finally:
            line.clear()

    async def open(
        self,
        method: str,
        path: str,
        *,
        json: Optional[Mapping[str, Any]] = None,
        params: Optional[Mapping[str, Any]] = None,
        body: Optional[Body] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[httpx.Timeout] = None,
        warm_up: bool = False,
        root: bool = False,
    ) -> httpx.Response:
        """Sends a request; gives its answer with the body still to be read."""
        deadline = time.monotonic() + self.config.warm_up_budget
        delay = WARM_UP_DELAY_FIRST
        restart = RestartWait()
        repeatable = method in ECHO_METHODS
        echoed = not repeatable
        while True:
            try:
                return await self._attempt(
                    method, path, json=json, params=params, body=body, headers=headers, timeout=timeout, root=root
                )
            except NotFoundError:
                if echoed:
                    raise
                echoed = True
                await sleep(ECHO_DELAY)
            except PandastackError as error:
                # Where nothing ever answered, the address is wrong, and waiting does not help.
                if repeatable and self._answered and isinstance(error, ConnectionError) and error.refused:
                    pause = restart.delay(time.monotonic())
                    if pause is None:
                        # It is gone: what is asked of it next is not waited for as long again.
                        self._answered = False
                        raise
                    _log.info("nothing listens at %s; asking again in %.1f s", self.config.base_url, pause)
                    await sleep(pause)
                    continue
                if not warm_up or not warming_up(error) or time.monotonic() >= deadline:
                    raise
                await sleep(delay)
                delay = min(delay * 1.5, WARM_UP_DELAY_MOST)

    async def events(self, response: httpx.Response) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of an answer that is a stream of them."""
        decoder = EventDecoder()
        try:
            async for piece in self.pieces(response):
                for event in decoder.feed(piece):
                    yield event
        finally:
            await response.aclose()

    async def pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The body of an answer, piece by piece."""
        try:
            async for piece in response.aiter_bytes():
                yield piece
        except httpx.TransportError as error:
            raise _unreachable(error) from None
        finally:
            await response.aclose()

    async def read(self, response: httpx.Response) -> bytes:
        """The whole body of an answer."""
        try:
            return await response.aread()
        except httpx.TransportError as error:
            raise _unreachable(error) from None
        finally:
            await response.aclose()

    async def lines(self, path: str, params: Mapping[str, Any], timeout: float) -> AsyncIterator[str]:
        """The lines of a log that is a stream of events, until its end."""
        response = await self.open(
            "GET", path, params=params, headers={"Accept": "text/event-stream"}, timeout=self.patience(timeout)
        )
        async for event in self.events(response):
            if event.event == "done" or (event.event == "" and event.data == "end"):
                return
            yield event.data

    async def send_form(self, path: str, form: Mapping[str, str], files: Optional[Mapping[str, Any]]) -> Any:
        """Sends a form: with files in parts, without any as one."""
        response = await self._attempt("POST", path, form=form, files=files, timeout=self.machine_patience())
        return await self._decoded(response)

    async def socket(self, path: str, params: Mapping[str, Any]) -> Socket:
        """Opens a WebSocket."""
        url = str(httpx.URL(self.config.socket_url(path), params={key: str(value) for key, value in params.items()}))
        return await Socket.open(url, self._headers(), self.timeout)

    def _headers(self) -> dict[str, str]:
        if not self.config.api_key:
            raise AuthError(
                "no API key: pass api_key=, or set PANDASTACK_API_KEY or PANDASTACK_TOKEN",
                code="unauthorized",
                hint="pandastack token create makes one",
            )
        return {"Authorization": f"Bearer {self.config.api_key}", "User-Agent": f"pandastack-py/{__version__}"}

    async def _decoded(self, response: httpx.Response) -> Any:
        content = await self.read(response)
        if not content:
            return None
        try:
            return json_module.loads(content)
        except ValueError as error:
            raise PandastackError(
                "the answer is not JSON: is this the address of a PandaStack server?", status=response.status_code
            ) from error

    async def _attempt(
        self,
        method: str,
        path: str,
        *,
        json: Optional[Mapping[str, Any]] = None,
        params: Optional[Mapping[str, Any]] = None,
        body: Optional[Body] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[httpx.Timeout] = None,
        root: bool = False,
        form: Optional[Mapping[str, str]] = None,
        files: Optional[Mapping[str, Any]] = None,
    ) -> httpx.Response:
        request = self._http.build_request(
            method,
            self.config.root_url(path) if root else self.config.url(path),
            json=None if json is None else dict(json),
            params=None if params is None else {key: value for key, value in params.items() if value is not None},
            content=None if body is None else body(),
            data=form,
            files=files or None,
            headers={"Accept": "application/json", **self._headers(), **(headers or {})},
            timeout=self.patience(self.timeout) if timeout is None else timeout,
        )
        try:
            response = await self._http.send(request, stream=True)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _unreachable(error) from None
        self._answered = True
        if 200 <= response.status_code < 300:
            return response
        text = (await self.read(response)).decode("utf-8", "replace")
        answer: Any
        try:
            answer = json_module.loads(text)
        except ValueError:
            answer = text
        raise error_from_answer(
            response.status_code,
            answer,
            request_id=response.headers.get("x-request-id"),
            retry_after=parse_retry_after(response.headers.get("retry-after")),
        )


def items(answer: Any, *names: str) -> list[Any]:
    """A list, whether it stands alone or in an object."""
    for name in (*names, "items"):
        found = as_object(answer).get(name)
        if isinstance(found, list):
            return as_list(found)
    return as_list(answer)


def _unreachable(error: Exception) -> ConnectionError:
    words = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return APITimeoutError(f"the server did not answer in time: {words}")
    unreachable = ConnectionError(f"the server cannot be reached: {words}")
    unreachable.refused = isinstance(error, httpx.ConnectError) and _is_refusal(error)
    return unreachable


def _is_refusal(error: BaseException) -> bool:
    """Whether nothing listened at an address, or at any of those that a name has."""
    told: list[Any] = [error]
    # Each address that was tried may be an error within a group; chains are short, and bounded here.
    for _ in range(_CHAIN_MOST):
        if not told:
            return False
        one = told.pop()
        if isinstance(one, ConnectionRefusedError):
            return True
        told += [one.__cause__, one.__context__] if isinstance(one, BaseException) else []
        told += getattr(one, "exceptions", ())
    return False

"""When a request is sent again, and after how long. Decisions only: waiting and sending are the transport's.

* A ``GET``, ``HEAD`` or ``DELETE`` answered 404 is sent once more after 200 ms.
* Creating and forking are sent again after a refusal that says nothing was made: 503 with ``Retry-After`` and an error of the
  server's own, 429 with ``Retry-After``, 507. Never after anything that may have followed a success: other statuses, a lost
  connection, a timeout.
* While the server prepares a template (503, ``template_preparing``), creating is sent again for as long as the work moves.
* A ``GET``, ``HEAD`` or ``DELETE`` whose connection is refused is sent again for up to 45 s, where the server answered this
  client before: one that restarts closes its port first, answers what it has, then begins anew. Where nothing ever answered,
  the address is wrong, and the request fails at once; so it does once that time was waited in vain.
* Commands, files and new contexts are sent again while a guest that just started cannot be reached yet.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Optional

from ._json import as_object
from .exceptions import PandastackError, ServerError
from .models import Progress

ECHO_METHODS = frozenset({"GET", "HEAD", "DELETE"})
ECHO_DELAY = 0.2

CREATE_BUDGET = 60.0
CREATE_CAP_FIRST = 1.0
CREATE_CAP_MOST = 15.0
CREATE_SHORTENED_LEAST = 1.0
CREATE_507_LEAST = 0.5

#: How long the preparation of a template may stand still before it is given up.
TEMPLATE_STALL = 600.0
#: Between two questions about a template that is being prepared, when the server does not say.
TEMPLATE_DELAY = 2.0

#: Sent with a create: hear soon how far the template is, instead of waiting for it in silence.
TELL_PROGRESS = {"Prefer": "wait=2"}

#: Between the first refused connection and the last: a server takes up to 20 s to stop, and some to start.
RESTART_BUDGET = 45.0
RESTART_DELAY_FIRST = 0.25
RESTART_DELAY_MOST = 2.0

WARM_UP_BUDGET = 20.0
WARM_UP_DELAY_FIRST = 0.5
WARM_UP_DELAY_MOST = 2.0
_WARM_UP_WORDS = ("connect: connection refused", "no route to host", "i/o timeout")


@dataclass(frozen=True)
class CreateRetryEvent:
    """A creation that was refused for lack of room and will be asked for again. Given to ``on_create_retry``."""

    method: str
    path: str
    #: 1 for the first time it is sent again.
    attempt: int
    status_code: int
    error: str
    delay_seconds: float
    elapsed_seconds: float
    retry_after_seconds: Optional[float] = None
    #: How far the template is, when the server prepares one.
    progress: Optional[Progress] = None


class CreateWait:
    """Decides how long one creation waits. Times are those of a monotonic clock.

    :param budget: seconds for lack of room.
    :param stall: seconds that the preparation of a template may stand still.
    :param most: seconds for everything together, if the caller gave a limit.
    """

    def __init__(self, *, budget: float, stall: float, most: Optional[float], now: float) -> None:
        self._budget = budget
        self._stall = stall
        self._most = most
        self._begun = now
        self._room_since = now
        self._attempt = 0
        self._moved_at = now
        self._changed_at: Optional[str] = None

    def delay(self, error: PandastackError, now: float) -> Optional[float]:
        """Seconds until the creation is sent again; ``None`` when it is not: then ``error`` says why."""
        progress = preparing(error)
        if progress is None:
            delay = create_delay(error, attempt=self._attempt, elapsed=now - self._room_since, budget=self._budget)
            self._attempt += 1
        else:
            # Lack of room is counted from the end of the preparation on.
            self._room_since, self._attempt = now, 0
            if progress.changed_at != self._changed_at:
                self._changed_at, self._moved_at = progress.changed_at, now
            if now - self._moved_at >= self._stall:
                error.message += f" (no progress for {self._stall:.0f} s)"
                return None
            delay = max(TEMPLATE_DELAY if error.retry_after is None else error.retry_after, 0.1)
        if delay is None or self._most is None:
            return delay
        left = self._begun + self._most - now
        if left <= 0:
            error.message += f" (waited {self._most:.0f} s, as long as max_create_wait_seconds allows)"
            return None
        return min(delay, left)


def preparing(error: PandastackError) -> Optional[Progress]:
    """How far a template is, if an error says that the server prepares it."""
    if error.status != 503 or error.code != "template_preparing":
        return None
    return Progress.from_dict(as_object(error.body).get("progress"))


def parse_retry_after(value: Optional[str]) -> Optional[float]:
    """Seconds of a ``Retry-After`` header: a number, or a date."""
    if value is None or not value.strip():
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value.strip())
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        seconds = (when - datetime.now(timezone.utc)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


class RestartWait:
    """Decides how long a request waits for a server that restarts. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._until: Optional[float] = None
        self._delay = RESTART_DELAY_FIRST

    def delay(self, now: float) -> Optional[float]:
        """Seconds until a request whose connection was refused is sent again; ``None`` when the time is up."""
        if self._until is None:
            self._until = now + RESTART_BUDGET
        remaining = self._until - now
        if remaining <= 0:
            return None
        delay = min(self._delay, remaining)
        self._delay = min(self._delay * 1.5, RESTART_DELAY_MOST)
        return delay


def create_delay(
    error: PandastackError,
    *,
    attempt: int,
    elapsed: float,
    budget: float,
    uniform: Callable[[float, float], float] = random.uniform,
) -> Optional[float]:
    """Seconds until a refused creation is sent again; ``None`` when it is not. ``attempt`` counts from 0."""
    after = error.retry_after
    if error.status == 429:
        if after is None:
            return None
    elif error.status == 503:
        if after is None or not _own_words(error.body):
            return None
    elif error.status != 507:
        return None
    remaining = budget - elapsed
    floor = after or 0.0
    if error.status == 507:
        floor = max(floor, CREATE_507_LEAST)
    if remaining <= 0 or floor > remaining:
        return None
    delay = floor + uniform(0.0, min(CREATE_CAP_MOST, CREATE_CAP_FIRST * 2.0 ** min(attempt, 30)))
    if delay > remaining:
        return remaining if remaining >= max(floor, CREATE_SHORTENED_LEAST) else None
    return delay


def _own_words(body: Any) -> bool:
    """Whether an error is the server's own, not that of something in between."""
    error = as_object(body).get("error")
    return isinstance(error, str) and bool(error.strip())


def warming_up(error: PandastackError) -> bool:
    """Whether an error says that the guest cannot be reached yet."""
    return isinstance(error, ServerError) and any(words in error.message for words in _WARM_UP_WORDS)


def took_too_long(error: PandastackError) -> bool:
    """Whether a server's error says that a command or cell exceeded its time."""
    if error.code == "timeout" and error.status == 504:
        return True
    message = error.message.lower()
    late = "timeout" in message or "deadline exceeded" in message
    return isinstance(error, ServerError) and late and "i/o timeout" not in message

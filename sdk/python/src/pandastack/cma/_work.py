"""The queue of an environment, as Anthropic's API has it: items of work and the leases on them."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

import httpx

from .._json import as_object
from .._retry import parse_retry_after
from ._config import CmaConfig

ANTHROPIC_VERSION = "2023-06-01"
ANTHROPIC_BETA = "managed-agents-2026-04-01"

#: Most milliseconds that the API lets a poll wait.
POLL_BLOCK_MS = 999
#: Statuses that may be otherwise the next time.
TRANSIENT = frozenset({408, 409, 425, 429})
BACKOFF_MOST = 60.0
#: Said in the first heartbeat of an item.
NO_HEARTBEAT = "NO_HEARTBEAT"
#: Seconds between heartbeats, at most, and how long a lease holds until the API says.
HEARTBEAT_MOST = 30.0
LEASE_TTL = 90.0
_ACK_ATTEMPTS = 4


class KeyRejected(Exception):
    """Anthropic does not know the environment's key."""


class Unavailable(Exception):
    """The queue could not be asked now; ``after`` is how long it said to wait."""

    def __init__(self, message: str, after: Optional[float] = None) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True)
class Work:
    """An item of work: a session that has something to do."""

    id: str
    kind: str
    session_id: str
    #: What came with the item to authorize what belongs to it, as it came.
    secret: Optional[str] = field(default=None, repr=False)

    @classmethod
    def from_dict(cls, data: Any) -> Optional[Work]:
        """An item from decoded JSON; ``None`` when it is none."""
        item = as_object(data)
        about = as_object(item.get("data"))
        if not isinstance(item.get("id"), str) or not item["id"]:
            return None
        secret = item.get("secret")
        kind = about.get("type")
        return cls(
            item["id"],
            kind if isinstance(kind, str) else "session",
            str(about.get("id") or ""),
            secret if isinstance(secret, str) and secret else None,
        )

    @property
    def token(self) -> Optional[str]:
        """The token within the secret. It may do what belongs to this item, and no more."""
        if self.secret is None:
            return None
        try:
            decoded = base64.urlsafe_b64decode(self.secret + "=" * (-len(self.secret) % 4))
            token = as_object(json.loads(decoded)).get("sessions_token")
        except ValueError:
            return None
        return token if isinstance(token, str) and token else None


def backoff(attempt: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds until the next attempt; the first is 1."""
    return min(BACKOFF_MOST, 2.0 ** min(attempt - 1, 6)) + uniform(0.0, 1.0)


class WorkQueue:
    """The queue of one environment."""

    def __init__(self, http: httpx.AsyncClient, config: CmaConfig) -> None:
        self._http = http
        self._base = f"{config.anthropic_api.rstrip('/')}/v1/environments/{config.environment_id}/work"
        self._key = config.environment_key
        self._headers = {
            "anthropic-version": ANTHROPIC_VERSION,
            "anthropic-beta": ANTHROPIC_BETA,
            "anthropic-worker-id": config.worker_id,
        }

    async def poll(self) -> Optional[Work]:
        """The next item; ``None`` when there is none now."""
        response = await self._send("GET", "poll", self._key, params={"block_ms": str(POLL_BLOCK_MS)})
        if response.status_code == 204 or not response.content:
            return None
        if response.status_code != 200:
            raise Unavailable(_said(response), parse_retry_after(response.headers.get("retry-after")))
        return Work.from_dict(_decoded(response))

    async def ack(self, work: Work) -> bool:
        """Takes the item; ``False`` when it cannot be had."""
        for attempt in range(1, _ACK_ATTEMPTS + 1):
            try:
                response = await self._send("POST", f"{work.id}/ack", self._key)
            except Unavailable:
                if attempt == _ACK_ATTEMPTS:
                    raise
            else:
                if response.status_code < 300:
                    return True
                if response.status_code < 500 and response.status_code not in TRANSIENT:
                    return False
                if attempt == _ACK_ATTEMPTS:
                    raise Unavailable(_said(response))
            await asyncio.sleep(backoff(attempt) / 4)
        return False

    async def heartbeat(self, work: Work, params: Mapping[str, str]) -> httpx.Response:
        """Holds on to the item."""
        return await self._send("POST", f"{work.id}/heartbeat", work.token or self._key, params=params)

    async def stop(self, work: Work) -> None:
        """Says that the item is done, or will not be done. That it is done already is fine."""
        response = await self._send("POST", f"{work.id}/stop", work.token or self._key, json={"force": True})
        if response.status_code >= 300 and response.status_code != 409:
            raise Unavailable(_said(response))

    async def _send(
        self,
        method: str,
        path: str,
        token: str,
        *,
        params: Optional[Mapping[str, str]] = None,
        json: Optional[Mapping[str, Any]] = None,
    ) -> httpx.Response:
        headers = {**self._headers, "authorization": f"Bearer {token}"}
        try:
            response = await self._http.request(
                method, f"{self._base}/{path}", headers=headers, params=params, json=json, timeout=30.0
            )
        except httpx.TransportError as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        if response.status_code in (401, 403) and token == self._key:
            raise KeyRejected(_said(response))
        return response


class Lease:
    """A lease on an item: the worker holds it until the runner does.

    Each heartbeat names the one before it. The runner knows nothing of those that the worker sent, so its own go through here.
    """

    def __init__(self, queue: WorkQueue, work: Work) -> None:
        self._queue = queue
        self._work = work
        self._last = NO_HEARTBEAT
        self._turn = asyncio.Lock()
        self._held_at = time.monotonic()
        self.ttl = LEASE_TTL
        #: Set when it is over.
        self.ended = asyncio.Event()
        #: Whether the item belongs to the queue or to another worker now.
        self.lost = False

    async def beat(self, desired_ttl_seconds: Optional[str] = None) -> httpx.Response:
        """Sends one heartbeat, and takes note of its answer."""
        async with self._turn:
            params = {"expected_last_heartbeat": self._last}
            if desired_ttl_seconds is not None:
                params["desired_ttl_seconds"] = desired_ttl_seconds
            response = await self._queue.heartbeat(self._work, params)
            if response.status_code == 200:
                self._note(as_object(_decoded(response)))
            elif response.status_code == 412:
                self._end(lost=True)
            elif response.status_code < 500 and response.status_code not in TRANSIENT:
                self._end(lost=False)
            return response

    def _note(self, answer: Mapping[str, Any]) -> None:
        self._held_at = time.monotonic()
        last = answer.get("last_heartbeat")
        if isinstance(last, str):
            self._last = last
        ttl = answer.get("ttl_seconds")
        if isinstance(ttl, (int, float)) and ttl > 0:
            self.ttl = float(ttl)
        if answer.get("state") in ("stopping", "stopped") or answer.get("lease_extended") is False:
            self._end(lost=False)

    def _end(self, *, lost: bool) -> None:
        self.lost = self.lost or lost
        self.ended.set()

    async def keep(self) -> None:
        """Sends heartbeats until the lease is over or this is cancelled."""
        while not self.ended.is_set():
            failed = False
            try:
                failed = (await self.beat()).status_code != 200
            except Unavailable:
                failed = True
            if failed and time.monotonic() - self._held_at > self.ttl:
                self._end(lost=True)
            pause = max(1.0, min(self.ttl / 3, HEARTBEAT_MOST))
            try:
                await asyncio.wait_for(self.ended.wait(), min(pause, 5.0) if failed else pause)
            except asyncio.TimeoutError:
                pass


def _decoded(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _said(response: httpx.Response) -> str:
    error = as_object(as_object(_decoded(response)).get("error")).get("message")
    text = error if isinstance(error, str) else response.text[:200]
    return f"{response.status_code} {text}".strip()

"""Managed databases."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

from .._config import segment
from .._json import as_object
from .._runtime_async import sleep
from ..exceptions import PandastackError
from .transport import AsyncTransport, items


class AsyncDatabases:
    """Managed PostgreSQL databases: ``client.databases``. Answers are dictionaries, as the server gives them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        *,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        label: Optional[str] = None,
        size: Optional[str] = None,
        always_on: Optional[bool] = None,
        timeout: float = 180.0,
    ) -> Dict[str, Any]:
        """Makes a database and waits until it can be connected to. ``size`` is ``1g``, ``4g`` or ``16g``."""
        fields = {"cpu": cpu, "memory_mb": memory_mb, "label": label, "size": size, "always_on": always_on}
        body = {key: value for key, value in fields.items() if value is not None}
        created = as_object(await self._transport.request("POST", "/databases", json=body))
        return await self.wait_until_ready(str(created["id"]), timeout=timeout)

    async def wait_until_ready(self, database_id: str, *, timeout: float = 180.0) -> Dict[str, Any]:
        """Waits until a database can be connected to.

        :raises PandastackError: when it failed.
        :raises TimeoutError: when that takes longer than ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        delay = 1.0
        while True:
            database = await self.get(database_id)
            status = str(database.get("status", ""))
            if status == "running" and database.get("connection_url"):
                return database
            if status in ("failed", "error"):
                raise PandastackError(f"database {database_id} failed: {database.get('error') or status}")
            if time.monotonic() >= deadline:
                raise TimeoutError(f"database {database_id} is {status} after {timeout:g} s")
            await sleep(delay)
            delay = min(delay * 1.5, 5.0)

    async def list(self) -> List[Dict[str, Any]]:
        """All databases, without their passwords."""
        return [as_object(one) for one in items(await self._transport.request("GET", "/databases"))]

    async def get(self, database_id: str) -> Dict[str, Any]:
        """The database of that id, with how to connect to it when it runs."""
        return as_object(await self._transport.request("GET", f"/databases/{segment(database_id)}"))

    async def delete(self, database_id: str) -> None:
        """Deletes a database and everything in it."""
        path = f"/databases/{segment(database_id)}"
        await self._transport.request("DELETE", path, timeout=self._transport.machine_patience())

    async def connection(self, database_id: str) -> Dict[str, Any]:
        """How to connect to it: ``connection_url`` and ``broker_url``."""
        return as_object(await self._transport.request("GET", f"/databases/{segment(database_id)}/connection"))

    async def failover(self, database_id: str) -> Dict[str, Any]:
        """Restores a failed database from its backup."""
        return await self._post(database_id, "failover", 300.0)

    async def update(self, database_id: str, *, always_on: Optional[bool] = None) -> Dict[str, Any]:
        """Says whether it may sleep while there is no connection to it."""
        body = {} if always_on is None else {"always_on": always_on}
        return as_object(await self._transport.request("PATCH", f"/databases/{segment(database_id)}", json=body))

    async def wake(self, database_id: str) -> Dict[str, Any]:
        """Wakes a sleeping database. Does not wait: see :meth:`wait_until_ready`."""
        return await self._post(database_id, "wake", self._transport.timeout)

    async def clone(
        self,
        database_id: str,
        *,
        label: Optional[str] = None,
        target_time: Optional[str] = None,
        size: Optional[str] = None,
        wait: bool = True,
        timeout: float = 600.0,
    ) -> Dict[str, Any]:
        """A new database with what this one held, now or at ``target_time`` (RFC 3339)."""
        fields = {"label": label, "target_time": target_time, "size": size}
        body = {key: value for key, value in fields.items() if value is not None}
        path = f"/databases/{segment(database_id)}/clone"
        created = as_object(await self._transport.request("POST", path, json=body))
        return await self.wait_until_ready(str(created["id"]), timeout=timeout) if wait else created

    async def reset_credentials(self, database_id: str) -> Dict[str, Any]:
        """New passwords; who is connected with the old ones is not any more."""
        answer = await self._post(database_id, "reset-credentials", 180.0)
        return answer if answer.get("connection_url") else await self.get(database_id)

    async def _post(self, database_id: str, verb: str, seconds: float) -> Dict[str, Any]:
        path = f"/databases/{segment(database_id)}/{verb}"
        patience = self._transport.patience(max(seconds, self._transport.timeout))
        return as_object(await self._transport.request("POST", path, timeout=patience))

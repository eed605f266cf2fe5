"""What a workspace has: sandboxes, snapshots, templates, volumes and keys."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, List, Optional, Union

from .._config import segment
from .._runtime_async import CancelEvent
from ..models import Promotion, SandboxInfo, Snapshot, Token, Volume
from .sandbox import AsyncSandbox
from .transport import AsyncTransport, items

if TYPE_CHECKING:
    from .client import AsyncPandaStack

#: A volume to attach: its name, or a name with options.
VolumeRequest = Union[str, Mapping[str, Any]]


class AsyncSandboxes:
    """Sandboxes: ``client.sandboxes``."""

    def __init__(self, client: AsyncPandaStack, transport: AsyncTransport) -> None:
        self._client = client
        self._transport = transport

    async def create(
        self,
        template: Optional[str] = None,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        ttl_seconds: Optional[int] = None,
        persistent: bool = False,
        metadata: Optional[Mapping[str, str]] = None,
        from_snapshot: Optional[str] = None,
        volumes: Optional[Sequence[VolumeRequest]] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        network: Optional[str] = None,
        disk_gb: Optional[int] = None,
        cancel: Optional[CancelEvent] = None,
    ) -> AsyncSandbox:
        """Makes a sandbox. When this returns it takes commands.

            sandbox = await client.sandboxes.create(template="base", ttl_seconds=600, metadata={"task": "42"})

        When there is no room it asks again for a while: see ``max_create_retry_seconds``.

        :param template: ``code-interpreter`` when absent; implied by ``from_snapshot``.
        :param cpu: deprecated and ignored, as is ``memory_mb``: a template has its size.
        :param ttl_seconds: seconds of idleness after which it is deleted.
        :param persistent: it sleeps when idle instead.
        :param metadata: words of your own.
        :param from_snapshot: a snapshot to go on from.
        :param volumes: volumes to attach, as ``/dev/vdb``, ``/dev/vdc``, …: names, or ``{"name": …, "read_only": True}``.
        :param env: variables of every command.
        :param network: ``"none"`` or ``"all"``.
        :param disk_gb: size of its root disk in GiB, at least that of what it starts from; the same when absent.
        :param cancel: an event that, once set, ends the asking with :class:`CreateCancelled`.
        """
        if cpu is not None or memory_mb is not None:
            warnings.warn("cpu and memory_mb are ignored: a template has its size", DeprecationWarning, stacklevel=2)
        body: dict[str, Any] = {}
        if from_snapshot is not None:
            body["from_snapshot"] = from_snapshot
        if template is not None or from_snapshot is None:
            body["template"] = template or AsyncSandbox.default_template
        if ttl_seconds is not None:
            body["ttl_seconds"] = ttl_seconds
        if persistent:
            body["persistent"] = True
        if metadata:
            body["metadata"] = dict(metadata)
        if volumes:
            body["volumes"] = [{"name": one} if isinstance(one, str) else dict(one) for one in volumes]
        if env:
            body["env"] = dict(env)
        if network is not None:
            body["network"] = network
        if disk_gb is not None:
            body["disk_gb"] = disk_gb
        return self._sandbox(await self._transport.create("/sandboxes", body, cancel=cancel))

    async def list(self) -> List[AsyncSandbox]:
        """All sandboxes, newest first."""
        return [self._sandbox(one) for one in items(await self._transport.request("GET", "/sandboxes"))]

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        """The sandbox of that id."""
        return self._sandbox(await self._transport.request("GET", f"/sandboxes/{segment(sandbox_id)}"))

    async def delete(self, sandbox_id: str) -> None:
        """Deletes a sandbox."""
        await self._transport.request("DELETE", f"/sandboxes/{segment(sandbox_id)}", timeout=self._transport.machine_patience())

    async def fork(
        self, sandbox_id: str, metadata: Optional[Mapping[str, str]] = None, *, cancel: Optional[CancelEvent] = None
    ) -> AsyncSandbox:
        """Forks a sandbox: see :meth:`AsyncSandbox.fork`."""
        body = None if metadata is None else {"metadata": dict(metadata)}
        answer = await self._transport.create(f"/sandboxes/{segment(sandbox_id)}/fork", body, cancel=cancel)
        children = items(answer, "children")
        child = answer.get("sandbox") or (children[0] if children else answer)
        return self._sandbox(child)

    async def fork_tree(
        self,
        sandbox_id: str,
        count: int,
        metadata: Optional[Mapping[str, str]] = None,
        *,
        cancel: Optional[CancelEvent] = None,
    ) -> List[AsyncSandbox]:
        """Forks a sandbox several ways: see :meth:`AsyncSandbox.fork_tree`."""
        body: dict[str, Any] = {"count": count}
        if metadata is not None:
            body["metadata"] = dict(metadata)
        answer = await self._transport.create(f"/sandboxes/{segment(sandbox_id)}/fork-tree", body, cancel=cancel)
        return [self._sandbox(one) for one in items(answer, "children", "items", "sandboxes")]

    async def promote(self, sandbox_id: str, *, cleanup_siblings: bool = False, tree_id: Optional[str] = None) -> Promotion:
        """Makes a child of a fork independent: see :meth:`AsyncSandbox.promote`."""
        body: dict[str, Any] = {"cleanup_siblings": cleanup_siblings}
        if tree_id is not None:
            body["tree_id"] = tree_id
        answer = await self._transport.request(
            "POST",
            f"/sandboxes/{segment(sandbox_id)}/promote",
            json=body,
            timeout=self._transport.machine_patience(),
        )
        return Promotion.from_dict(answer)

    def _sandbox(self, data: Any) -> AsyncSandbox:
        return AsyncSandbox(self._client, SandboxInfo.from_dict(data))


class AsyncSnapshots:
    """Snapshots: ``client.snapshots``. They are made with ``sandbox.snapshot()``."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, sandbox_id: Optional[str] = None) -> List[Snapshot]:
        """All snapshots, or those of a sandbox; newest first."""
        answer = await self._transport.request("GET", "/snapshots", params={"sandbox_id": sandbox_id})
        return [Snapshot.from_dict(one) for one in items(answer, "snapshots")]

    async def get(self, snapshot_id: str) -> Snapshot:
        """The snapshot of that id."""
        return Snapshot.from_dict(await self._transport.request("GET", f"/snapshots/{segment(snapshot_id)}"))

    async def delete(self, snapshot_id: str) -> None:
        """Deletes a snapshot. Sandboxes made from it go on."""
        await self._transport.request(
            "DELETE", f"/snapshots/{segment(snapshot_id)}", timeout=self._transport.machine_patience()
        )


class AsyncVolumes:
    """Disks that outlive sandboxes: ``client.volumes``."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str, size_mb: Optional[int] = None) -> Volume:
        """Makes a volume; of 256 MiB when no size is given."""
        body: dict[str, Any] = {"name": name}
        if size_mb is not None:
            body["size_mb"] = size_mb
        return Volume.from_dict(await self._transport.request("POST", "/volumes", json=body))

    async def list(self) -> List[Volume]:
        """All volumes."""
        return [Volume.from_dict(one) for one in items(await self._transport.request("GET", "/volumes"))]

    async def get(self, name: str) -> Volume:
        """The volume of that name."""
        return Volume.from_dict(await self._transport.request("GET", f"/volumes/{segment(name)}"))

    async def resize(self, name: str, size_mb: int) -> Volume:
        """Makes a volume larger."""
        answer = await self._transport.request("PATCH", f"/volumes/{segment(name)}", json={"size_mb": size_mb})
        return Volume.from_dict(answer)

    async def delete(self, name: str) -> None:
        """Deletes a volume and what is on it. Refused while it is attached."""
        await self._transport.request("DELETE", f"/volumes/{segment(name)}")


class AsyncTokens:
    """API keys: ``client.tokens``."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str = "", expires_in_days: Optional[float] = None, *, scope: Optional[str] = None) -> Token:
        """Makes a key. ``token`` of the answer is the key; it is never shown again.

        :param scope: ``read``, ``write`` or ``admin``; what this client's own key allows when absent.
        """
        body: dict[str, Any] = {"label": name}
        if expires_in_days is not None:
            body["expires_in_days"] = expires_in_days
        if scope is not None:
            body["scope"] = scope
        return Token.from_dict(await self._transport.request("POST", "/me/tokens", json=body))

    async def list(self) -> List[Token]:
        """All keys, without the keys themselves."""
        return [Token.from_dict(one) for one in items(await self._transport.request("GET", "/me/tokens"))]

    async def revoke(self, prefix: str) -> None:
        """Makes a key useless."""
        await self._transport.request("DELETE", f"/me/tokens/{segment(prefix)}")

# Generated from ../_async/resources.py by scripts/generate_sync.py. Do not edit.
"""What a workspace has: sandboxes, snapshots, templates, volumes and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Union

from .._config import segment
from .._runtime_sync import CancelEvent
from ..models import DeletedSandboxes, Progress, Promotion, SandboxInfo, Snapshot, Token, Volume, VolumeMount
from .sandbox import Sandbox, warned
from .transport import STREAM_TIMEOUT, Transport, items

if TYPE_CHECKING:
    from .client import PandaStack

#: A volume to attach: ``"data"``, ``"data:/mnt"``, ``"data:/mnt:ro"``, a :class:`VolumeMount`, or a dictionary of its fields.
VolumeRequest = Union[str, VolumeMount, Mapping[str, Any]]


class Sandboxes:
    """Sandboxes: ``client.sandboxes``."""

    def __init__(self, client: PandaStack, transport: Transport) -> None:
        self._client = client
        self._transport = transport

    def create(
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
        name: Optional[str] = None,
        cancel: Optional[CancelEvent] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        max_create_wait_seconds: Optional[float] = None,
    ) -> Sandbox:
        """Makes a sandbox. When this returns it takes commands.

            sandbox = client.sandboxes.create(template="base", ttl_seconds=600, metadata={"task": "42"})

        The first use of a template (or of a size of it) prepares it, which takes a minute or several. This waits as long as the
        server makes progress, and shows it on a terminal. When there is no room it asks again for a while: see
        ``max_create_retry_seconds``.

        :param template: ``code-interpreter`` when absent; implied by ``from_snapshot``.
        :param cpu: virtual CPUs; those of the template when absent.
        :param memory_mb: memory in MiB, rounded up to a multiple of 64; that of the template when absent.
        :param ttl_seconds: seconds of idleness after which it is deleted.
        :param persistent: it sleeps when idle instead.
        :param metadata: metadata, such as ``{"task": "42"}``.
        :param from_snapshot: a snapshot to go on from.
        :param volumes: volumes to attach: ``"data:/mnt"`` mounts the volume ``data`` at ``/mnt``, ``"data:/mnt:ro"`` does so
            read-only, ``"data"`` is a device (``/dev/vdb``, …) and not mounted. A :class:`VolumeMount` says the same.
        :param env: variables of every command.
        :param network: ``"none"`` or ``"all"``; the workspace's default when absent.
        :param disk_gb: size of its root disk in GiB, at least that of what it starts from; the same when absent.
        :param name: a name that stands wherever an id does, unique among your sandboxes.
        :param cancel: an event that, once set, ends the waiting with :class:`CreateCancelled`.
        :param on_progress: called with a :class:`Progress` while a template is prepared, instead of the line on the terminal.
        :param max_create_wait_seconds: limit on all waiting of this creation.
        """
        body: dict[str, Any] = {}
        if from_snapshot is not None:
            body["from_snapshot"] = from_snapshot
        if template is not None or from_snapshot is None:
            body["template"] = template or Sandbox.default_template
        if ttl_seconds is not None:
            body["ttl_seconds"] = ttl_seconds
        if persistent:
            body["persistent"] = True
        if metadata:
            body["metadata"] = dict(metadata)
        if volumes:
            body["volumes"] = [_volume(one) for one in volumes]
        if env:
            body["env"] = dict(env)
        if network is not None:
            body["network"] = network
        sizes = {"cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb, "name": name}
        body.update({key: value for key, value in sizes.items() if value is not None})
        answer = self._transport.create(
            "/sandboxes",
            body,
            what=str(body.get("template", "the template")),
            cancel=cancel,
            on_progress=on_progress,
            max_wait_seconds=max_create_wait_seconds,
        )
        return warned(self._sandbox(answer))

    def list(
        self,
        *,
        status: Union[str, Sequence[str], None] = None,
        template: Optional[str] = None,
        name: Optional[str] = None,
        metadata: Optional[Mapping[str, Optional[str]]] = None,
        parent: Optional[str] = None,
        root: Optional[str] = None,
    ) -> List[Sandbox]:
        """Sandboxes, newest first: all, or those that fit everything that is given.

            client.sandboxes.list(status="running", metadata={"task": "42"})

        :param status: such as ``running``, or several of them.
        :param metadata: keys with their values; ``None`` for any value.
        :param parent: the sandbox that they were forked from, or made from a snapshot of.
        :param root: a sandbox that they descend from, over however many generations.
        """
        which = _filter(status, template, name, metadata, parent, root)
        return [self._sandbox(one) for one in items(self._transport.request("GET", "/sandboxes", params=which))]

    def get(self, sandbox_id: str) -> Sandbox:
        """The sandbox of that id, name, or beginning of an id."""
        return self._sandbox(self._transport.request("GET", f"/sandboxes/{segment(sandbox_id)}"))

    def delete(self, sandbox_id: str) -> None:
        """Deletes the sandbox of that id, name, or beginning of an id."""
        self._transport.request("DELETE", f"/sandboxes/{segment(sandbox_id)}", timeout=self._transport.machine_patience())

    def delete_all(
        self,
        *,
        all: bool = False,  # noqa: A002 - the word of the HTTP interface
        status: Union[str, Sequence[str], None] = None,
        template: Optional[str] = None,
        name: Optional[str] = None,
        metadata: Optional[Mapping[str, Optional[str]]] = None,
        parent: Optional[str] = None,
        root: Optional[str] = None,
    ) -> DeletedSandboxes:
        """Deletes every sandbox that fits everything that is given; with ``all=True`` and nothing else, every sandbox.

        done = client.sandboxes.delete_all(metadata={"task": "42"})
        print(done.deleted, done.failures)
        """
        which = _filter(status, template, name, metadata, parent, root)
        if not which and not all:
            raise ValueError("say which sandboxes to delete: give a filter, or all=True")
        if which and all:
            raise ValueError("all=True deletes every sandbox: give either that or a filter")
        answer = self._transport.request(
            "DELETE",
            "/sandboxes",
            params=which or {"all": "true"},
            timeout=self._transport.patience(max(self._transport.timeout, STREAM_TIMEOUT)),
        )
        return DeletedSandboxes.from_dict(answer)

    def fork(
        self,
        sandbox_id: str,
        metadata: Optional[Mapping[str, str]] = None,
        *,
        cancel: Optional[CancelEvent] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        max_create_wait_seconds: Optional[float] = None,
    ) -> Sandbox:
        """Forks a sandbox: see :meth:`Sandbox.fork`."""
        body = None if metadata is None else {"metadata": dict(metadata)}
        answer = self._transport.create(
            f"/sandboxes/{segment(sandbox_id)}/fork",
            body,
            cancel=cancel,
            on_progress=on_progress,
            max_wait_seconds=max_create_wait_seconds,
        )
        children = items(answer, "children")
        child = answer.get("sandbox") or (children[0] if children else answer)
        return self._sandbox(child)

    def fork_tree(
        self,
        sandbox_id: str,
        count: int,
        metadata: Optional[Mapping[str, str]] = None,
        *,
        cancel: Optional[CancelEvent] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        max_create_wait_seconds: Optional[float] = None,
    ) -> List[Sandbox]:
        """Forks a sandbox several ways: see :meth:`Sandbox.fork_tree`."""
        body: dict[str, Any] = {"count": count}
        if metadata is not None:
            body["metadata"] = dict(metadata)
        answer = self._transport.create(
            f"/sandboxes/{segment(sandbox_id)}/fork-tree",
            body,
            cancel=cancel,
            on_progress=on_progress,
            max_wait_seconds=max_create_wait_seconds,
        )
        return [self._sandbox(one) for one in items(answer, "children", "items", "sandboxes")]

    def promote(self, sandbox_id: str, *, cleanup_siblings: bool = False, tree_id: Optional[str] = None) -> Promotion:
        """Makes a child of a fork independent: see :meth:`Sandbox.promote`."""
        body: dict[str, Any] = {"cleanup_siblings": cleanup_siblings}
        if tree_id is not None:
            body["tree_id"] = tree_id
        answer = self._transport.request(
            "POST",
            f"/sandboxes/{segment(sandbox_id)}/promote",
            json=body,
            timeout=self._transport.machine_patience(),
        )
        return Promotion.from_dict(answer)

    def _sandbox(self, data: Any) -> Sandbox:
        return Sandbox(self._client, SandboxInfo.from_dict(data))


def _volume(given: VolumeRequest) -> dict[str, Any]:
    if isinstance(given, str):
        given = VolumeMount.of(given)
    return given.request() if isinstance(given, VolumeMount) else dict(given)


def _filter(
    status: Union[str, Sequence[str], None],
    template: Optional[str],
    name: Optional[str],
    metadata: Optional[Mapping[str, Optional[str]]],
    parent: Optional[str],
    root: Optional[str],
) -> dict[str, Any]:
    """As a query. What is empty is sent too: the server refuses it, where leaving it out would mean all."""
    query: dict[str, Any] = {"template": template, "name": name, "parent": parent, "root": root}
    if status is not None:
        query["status"] = [status] if isinstance(status, str) else list(status)
    if metadata is not None:
        query["metadata"] = [key if value is None else f"{key}={value}" for key, value in metadata.items()]
    if query.get("status") == [] or query.get("metadata") == []:
        raise ValueError("an empty filter fits nothing: leave it out, or name what is meant")
    return {key: value for key, value in query.items() if value is not None}


class Snapshots:
    """Snapshots: ``client.snapshots``. They are made with ``sandbox.snapshot()``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, sandbox_id: Optional[str] = None) -> List[Snapshot]:
        """All snapshots, or those of a sandbox; newest first."""
        answer = self._transport.request("GET", "/snapshots", params={"sandbox_id": sandbox_id})
        return [Snapshot.from_dict(one) for one in items(answer, "snapshots")]

    def get(self, snapshot_id: str) -> Snapshot:
        """The snapshot of that id."""
        return Snapshot.from_dict(self._transport.request("GET", f"/snapshots/{segment(snapshot_id)}"))

    def delete(self, snapshot_id: str) -> None:
        """Deletes a snapshot. Sandboxes made from it go on."""
        self._transport.request(
            "DELETE", f"/snapshots/{segment(snapshot_id)}", timeout=self._transport.machine_patience()
        )


class Volumes:
    """Disks that outlive sandboxes: ``client.volumes``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, size_mb: Optional[int] = None) -> Volume:
        """Makes a volume; of 256 MiB when no size is given. :meth:`Sandboxes.create` attaches it."""
        body: dict[str, Any] = {"name": name}
        if size_mb is not None:
            body["size_mb"] = size_mb
        return Volume.from_dict(self._transport.request("POST", "/volumes", json=body))

    def list(self) -> List[Volume]:
        """All volumes."""
        return [Volume.from_dict(one) for one in items(self._transport.request("GET", "/volumes"))]

    def get(self, name: str) -> Volume:
        """The volume of that name."""
        return Volume.from_dict(self._transport.request("GET", f"/volumes/{segment(name)}"))

    def resize(self, name: str, size_mb: int) -> Volume:
        """Makes a volume larger."""
        answer = self._transport.request("PATCH", f"/volumes/{segment(name)}", json={"size_mb": size_mb})
        return Volume.from_dict(answer)

    def delete(self, name: str) -> None:
        """Deletes a volume and what is on it. Refused while it is attached."""
        self._transport.request("DELETE", f"/volumes/{segment(name)}")


class Tokens:
    """API keys: ``client.tokens``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str = "", expires_in_days: Optional[float] = None, *, scope: Optional[str] = None) -> Token:
        """Makes a key. ``token`` of the answer is the key; it is never shown again.

        :param scope: ``read``, ``write`` or ``admin``; what this client's own key allows when absent.
        """
        body: dict[str, Any] = {"label": name}
        if expires_in_days is not None:
            body["expires_in_days"] = expires_in_days
        if scope is not None:
            body["scope"] = scope
        return Token.from_dict(self._transport.request("POST", "/me/tokens", json=body))

    def list(self) -> List[Token]:
        """All keys, without the keys themselves."""
        return [Token.from_dict(one) for one in items(self._transport.request("GET", "/me/tokens"))]

    def revoke(self, prefix: str) -> None:
        """Makes a key useless."""
        self._transport.request("DELETE", f"/me/tokens/{segment(prefix)}")

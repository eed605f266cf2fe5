"""What the server answers, as objects.

Each class is a schema of the server's OpenAPI document; a test compares them. Fields that a newer server adds are ignored,
fields that an older one leaves out have defaults. Fields can also be read like those of a dictionary: ``token["prefix"]``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional, TypeVar

from ._json import as_list, as_object

M = TypeVar("M", bound="Model")


@dataclass(frozen=True)
class Model:
    """A frozen dataclass that is made from JSON."""

    #: Fields that are models themselves, alone or in a list.
    _nested: ClassVar[dict[str, type[Model]]] = {}

    @classmethod
    def from_dict(cls: type[M], data: Any) -> M:
        """Makes one from decoded JSON."""
        given = as_object(data)
        values: dict[str, Any] = {}
        for name in _names(cls):
            value = given.get(name)
            if value is None:
                continue  # Absent and null are the same: the default.
            nested = cls._nested.get(name)
            if nested is not None:
                value = (
                    [nested.from_dict(one) for one in as_list(value)] if isinstance(value, list) else nested.from_dict(value)
                )
            values[name] = value
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return dataclasses.asdict(self)

    def get(self, name: str, default: Any = None) -> Any:
        """A field's value, or the default when there is no such field or it is ``None``."""
        value = getattr(self, name, None) if name in _names(type(self)) else None
        return default if value is None else value

    def keys(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(_names(type(self)))

    def __getitem__(self, name: str) -> Any:
        if name not in _names(type(self)):
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in _names(type(self))


def _names(cls: type[Model]) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(cls))


def _strings() -> list[str]:
    return []


def _words() -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class AttachedVolume(Model):
    """A volume of a sandbox."""

    name: str = ""
    device: str = ""
    read_only: bool = False
    #: Where it is mounted, if the server mounts it.
    mount: Optional[str] = None


@dataclass(frozen=True)
class CreateTimings(Model):
    """Where the time of a creation went, in milliseconds."""

    confirm_ms: float = 0.0
    load_ms: float = 0.0
    prepare_ms: float = 0.0
    record_ms: float = 0.0
    prestarted: bool = False


@dataclass(frozen=True)
class Progress(Model):
    """How far the server is with a template that a creation waits for. Given to ``on_progress``."""

    #: What is being done, such as ``installing packages: 41 of 130``.
    step: str = ""
    #: When the work began (RFC 3339).
    started_at: str = ""
    #: When ``step`` last changed (RFC 3339). While it moves, waiting helps.
    changed_at: str = ""


@dataclass(frozen=True)
class Partial(Model):
    """What a command or code wrote before its time was up."""

    stdout: str = ""
    stderr: str = ""
    #: Whether output was dropped.
    truncated: bool = False
    #: What code had shown until then: MIME bundles. ``None`` for commands.
    results: Optional[list[dict[str, str]]] = None


def _volumes() -> list[AttachedVolume]:
    return []


@dataclass(frozen=True)
class SandboxInfo(Model):
    """A sandbox as the server described it. Schema ``Sandbox``."""

    id: str = ""
    #: A name given to it, which stands wherever an id does.
    name: Optional[str] = None
    template: str = ""
    status: str = "unknown"
    cpu: int = 1
    memory_mb: int = 0
    #: Size of its root disk in GiB.
    disk_gb: int = 0
    metadata: dict[str, str] = field(default_factory=_words)
    created_at: str = ""
    persistent: bool = False
    ttl_seconds: int = 0
    network: str = ""
    boot_mode: str = ""
    boot_ms: Optional[int] = None
    env_names: list[str] = field(default_factory=_strings)
    failure: Optional[str] = None
    from_snapshot: Optional[str] = None
    guest_ip: Optional[str] = None
    mac: Optional[str] = None
    parent_id: Optional[str] = None
    #: The sandboxes it comes from, deleted ones included: the oldest first.
    ancestors: list[str] = field(default_factory=_strings)
    #: Seconds until it has idled for ``ttl_seconds``.
    idle_seconds_left: Optional[int] = None
    timings: Optional[CreateTimings] = None
    unique_bytes: Optional[int] = None
    volumes: list[AttachedVolume] = field(default_factory=_volumes)
    #: What to know about what was asked for; in answers to create and patch only.
    warnings: list[str] = field(default_factory=_strings)
    _nested: ClassVar[dict[str, type[Model]]] = {"timings": CreateTimings, "volumes": AttachedVolume}


@dataclass(frozen=True)
class DeletedSandboxes(Model):
    """What became of sandboxes that were to be deleted."""

    #: Ids of those that are gone.
    deleted: list[str] = field(default_factory=_strings)
    #: Ids of those that could not be deleted, and why.
    failures: dict[str, str] = field(default_factory=_words)


@dataclass(frozen=True)
class Ancestor(Model):
    """A sandbox that another comes from."""

    id: str = ""
    name: Optional[str] = None
    #: ``deleted`` when it is gone.
    status: str = ""


def _nodes() -> list[TreeNode]:
    return []


@dataclass(frozen=True)
class TreeNode(Model):
    """A sandbox in a tree."""

    id: str = ""
    name: Optional[str] = None
    #: ``deleted`` when it is gone.
    status: str = ""
    #: ``None`` when it is gone.
    template: Optional[str] = None
    created_at: Optional[str] = None
    #: Its place among the children of its fork.
    fork_index: Optional[int] = None
    #: Those that come from it directly, the oldest first.
    children: list[TreeNode] = field(default_factory=_nodes)

    def walk(self) -> Iterator[TreeNode]:
        """This one and all that come from it, parents before children."""
        rest: list[TreeNode] = [self]
        while rest:
            here = rest.pop()
            yield here
            rest.extend(reversed(here.children))


TreeNode._nested = {"children": TreeNode}  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class TreeSnapshot(Model):
    """A snapshot of a sandbox in a tree."""

    id: str = ""
    sandbox_id: str = ""
    created_at: str = ""


def _ancestors() -> list[Ancestor]:
    return []


def _tree_snapshots() -> list[TreeSnapshot]:
    return []


@dataclass(frozen=True)
class SandboxTree(Model):
    """A sandbox with all its relatives."""

    #: The oldest sandbox that is known, where ``tree`` begins.
    root: str = ""
    #: Where the sandbox that was asked for comes from, the oldest first.
    ancestors: list[Ancestor] = field(default_factory=_ancestors)
    #: The root and all that come from it.
    tree: TreeNode = field(default_factory=TreeNode)
    #: Snapshots of sandboxes in the tree, newest first.
    snapshots: list[TreeSnapshot] = field(default_factory=_tree_snapshots)
    _nested: ClassVar[dict[str, type[Model]]] = {"ancestors": Ancestor, "tree": TreeNode, "snapshots": TreeSnapshot}


@dataclass(frozen=True)
class VolumeMount:
    """A volume to attach, and where the server mounts it. ``VolumeMount.of("data:/mnt:ro")`` reads the short form."""

    name: str
    #: Such as ``/mnt``; ``None``: it is attached as a device and not mounted.
    mount: Optional[str] = None
    read_only: bool = False

    @classmethod
    def of(cls, text: str) -> VolumeMount:
        """Reads ``NAME``, ``NAME:/PATH``, ``NAME:ro`` or ``NAME:/PATH:ro``."""
        name, *options = text.split(":")
        mount: Optional[str] = None
        mode: Optional[str] = None
        for option in options:
            if option.startswith("/") and mount is None and mode is None:
                mount = option
            elif option in ("ro", "rw") and mode is None:
                mode = option
            else:
                raise ValueError(f"not a volume: {text!r}; expected NAME, NAME:/PATH or NAME:/PATH:ro")
        if not name:
            raise ValueError(f"not a volume: {text!r}; expected NAME, NAME:/PATH or NAME:/PATH:ro")
        return cls(name, mount, mode == "ro")

    def request(self) -> dict[str, Any]:
        """As it is sent."""
        body: dict[str, Any] = {"name": self.name}
        if self.mount is not None:
            body["mount"] = self.mount
        if self.read_only:
            body["read_only"] = True
        return body


@dataclass(frozen=True)
class Lifecycle(Model):
    """How long a sandbox may idle."""

    ttl_seconds: int = 0
    persistent: bool = False
    idle_seconds: int = 0


@dataclass(frozen=True)
class ExecResult(Model):
    """How a command ended. Schema ``ExecAnswer``."""

    stdout: str = ""
    stderr: str = ""
    #: 128 + n when signal n ended it.
    exit_code: int = 0
    duration_ms: int = 0
    #: Whether output beyond the server's bound was dropped.
    truncated: bool = False
    #: Names the command among the sandbox's processes, where that is known.
    process_id: Optional[int] = None
    #: What may help, when the command failed because the sandbox has no network.
    hint: Optional[str] = None

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class Output:
    """A piece of a command's output."""

    #: ``stdout`` or ``stderr``.
    stream: str
    text: str


@dataclass(frozen=True)
class ProcessInfo(Model):
    """A process of a sandbox. Schema ``Process``."""

    id: int = 0
    pid: int = 0
    command: str = ""
    running: bool = False
    exit_code: Optional[int] = None
    tag: Optional[str] = None


@dataclass(frozen=True)
class FileInfo(Model):
    """A file or directory. Schema ``FileEntry``."""

    name: str = ""
    path: str = ""
    is_dir: bool = False
    size: int = 0
    #: As ``ls -l`` shows it.
    mode: str = ""
    #: Last change, in seconds of Unix time.
    mtime: int = 0
    link_target: Optional[str] = None


@dataclass(frozen=True)
class FileChange:
    """A change that ``files.watch`` saw."""

    path: str
    #: ``created``, ``changed``, ``removed`` or ``moved``; or ``overflow``: changes were lost, look at everything again.
    kind: str
    is_dir: bool = False
    #: Where it is now, if it was moved.
    to: Optional[str] = None


@dataclass(frozen=True)
class FileWritten(Model):
    """A file that was written."""

    path: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class TransferProgress:
    """How far an upload or a download is. Given to ``on_progress``."""

    #: The local file that is being sent or written.
    path: str
    bytes_done: int
    bytes_total: int
    files_done: int
    files_total: int


@dataclass(frozen=True)
class Snapshot(Model):
    """An instant of a sandbox: memory and disk."""

    id: str = ""
    sandbox_id: str = ""
    template: str = ""
    created_at: str = ""
    size_bytes: int = 0
    unique_bytes: int = 0
    workspace: str = ""
    snapshot_id: str = ""
    #: The sandboxes that the one it was taken of comes from, the oldest first.
    ancestors: list[str] = field(default_factory=_strings)
    parent_snapshot_id: Optional[str] = None


@dataclass(frozen=True)
class Promotion(Model):
    """What became of a child's siblings. Schema ``PromoteAnswer``."""

    winner: str = ""
    tree_id: str = ""
    deleted: list[str] = field(default_factory=_strings)
    failures: dict[str, str] = field(default_factory=_words)


@dataclass(frozen=True)
class ContextInfo(Model):
    """A context: an interpreter that keeps its state. Schema ``Context``."""

    id: str = ""
    sandbox_id: str = ""
    language: str = ""
    created_at: str = ""
    cells: int = 0


@dataclass(frozen=True)
class Port(Model):
    """A port of a sandbox."""

    port: int = 0
    listening: bool = False
    #: ``user`` when it was named by hand, ``detected`` when something listens.
    source: str = ""
    proxy_url: str = ""
    label: Optional[str] = None


@dataclass(frozen=True)
class Preview(Model):
    """A link to a port that works without a key."""

    url: str = ""
    token: str = ""
    sandbox_id: str = ""
    port: int = 0
    paths: list[str] = field(default_factory=_strings)
    expires_at: str = ""


@dataclass(frozen=True)
class Event(Model):
    """Something that happened to a sandbox."""

    time: str = ""
    sandbox_id: str = ""
    #: Such as ``sandbox.running``.
    type: str = ""
    payload: Any = None


@dataclass(frozen=True)
class GuestMetrics(Model):
    """What a guest sees of itself."""

    cpus: int = 0
    cpu_busy_us: int = 0
    cpu_total_us: int = 0
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    disk_total_bytes: int = 0
    disk_used_bytes: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class DeviceMetrics(Model):
    """What a machine's devices have carried since it was started or woken. What the host's engine does not count is ``None``."""

    disk_read_bytes: int = 0
    disk_written_bytes: int = 0
    disk_reads: int = 0
    disk_writes: int = 0
    #: How often a disk waited because of the host's limit on its rate.
    disk_throttled: Optional[int] = None
    network_received_bytes: Optional[int] = None
    network_sent_bytes: Optional[int] = None
    network_throttled: Optional[int] = None
    #: Memory that the guest freed and the host was given back.
    memory_given_back_bytes: Optional[int] = None


@dataclass(frozen=True)
class SandboxMetrics(Model):
    """What a sandbox's machine costs its host, and what its guest sees."""

    pid: int = 0
    uptime_seconds: float = 0.0
    host_cpu_percent: float = 0.0
    host_rss_bytes: int = 0
    host_vsz_bytes: int = 0
    threads: int = 0
    guest: Optional[GuestMetrics] = None
    devices: Optional[DeviceMetrics] = None
    _nested: ClassVar[dict[str, type[Model]]] = {"guest": GuestMetrics, "devices": DeviceMetrics}


@dataclass(frozen=True)
class TemplateSize(Model):
    """Bytes a template takes on the host."""

    #: Those it shares with others included.
    bytes: int = 0
    unique_bytes: int = 0


@dataclass(frozen=True)
class TemplateMeta(Model):
    """How a custom template was built."""

    built_at: str = ""
    build_id: str = ""
    image_ref: Optional[str] = None


@dataclass(frozen=True)
class Template(Model):
    """A template: what sandboxes start as."""

    _nested: ClassVar[dict[str, type[Model]]] = {
        "size_on_disk": TemplateSize,
        "meta": TemplateMeta,
        "progress_detail": Progress,
    }

    name: str = ""
    #: ``ready``, ``preparing`` or ``not_prepared``.
    status: str = ""
    progress: Optional[str] = None
    #: The same with times, while it is prepared.
    progress_detail: Optional[Progress] = None
    aliases: list[str] = field(default_factory=_strings)
    cpu: int = 0
    memory_mb: int = 0
    size_bytes: int = 0
    is_global: bool = False
    tools: list[str] = field(default_factory=_strings)
    rootfs_path: str = ""
    #: Whose it is, unless it is everybody's.
    workspace: Optional[str] = None
    #: Digest of the disk, of a template that was built.
    digest: Optional[str] = None
    #: Only when one template is asked for.
    size_on_disk: Optional[TemplateSize] = None
    meta: Optional[TemplateMeta] = None
    #: What a catalogue says of it, on servers that have one.
    label: Optional[str] = None
    description: Optional[str] = None
    category: Optional[str] = None
    base: Optional[str] = None


@dataclass(frozen=True)
class TemplateBuild(Model):
    """A template that is being made, or was."""

    id: str = ""
    name: str = ""
    #: ``queued``, ``running``, ``done``, ``failed``, or something in between.
    status: str = ""
    error: Optional[str] = None
    started_at: Optional[str] = None
    ended_at: Optional[str] = None
    size_mb: Optional[int] = None
    cpu: Optional[int] = None
    memory_mb: Optional[int] = None
    bytes: Optional[int] = None
    image_ref: Optional[str] = None
    #: ``dockerfile``, ``image``, ``archive`` or ``tarball``.
    source: Optional[str] = None
    owner_workspace: Optional[str] = None

    @property
    def is_done(self) -> bool:
        """Whether the template can be used."""
        return self.status == "done"

    @property
    def is_failed(self) -> bool:
        """Whether it came to nothing."""
        return self.status == "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether it is over."""
        return self.is_done or self.is_failed


@dataclass(frozen=True)
class Token(Model):
    """An API key. ``token``, the key itself, is there only when it was just made."""

    prefix: str = ""
    label: str = ""
    name: str = ""
    scope: str = ""
    created_at: str = ""
    expires_at: Optional[str] = None
    token: Optional[str] = field(default=None, repr=False)


@dataclass(frozen=True)
class Volume(Model):
    """A disk that outlives sandboxes."""

    name: str = ""
    size_mb: int = 0
    size_bytes: int = 0
    used_bytes: int = 0
    attached_to: list[str] = field(default_factory=_strings)
    created_at: str = ""


@dataclass(frozen=True)
class Organisation(Model):
    """An organisation. Each workspace is one."""

    id: str = ""
    name: str = ""
    slug: str = ""
    role: str = ""
    created_at: str = ""


def _organisations() -> list[Organisation]:
    return []


@dataclass(frozen=True)
class Me(Model):
    """Who is calling."""

    id: str = ""
    user_id: str = ""
    name: str = ""
    email: str = ""
    workspace: str = ""
    scope: str = ""
    auth_method: str = ""
    current_org_id: str = ""
    #: What sandboxes reach when ``network`` is not said: ``none``, ``all``, or ``None`` for the operator's default.
    network_default: Optional[str] = None
    current_org: Optional[Organisation] = None
    orgs: list[Organisation] = field(default_factory=_organisations)
    _nested: ClassVar[dict[str, type[Model]]] = {"current_org": Organisation, "orgs": Organisation}


@dataclass(frozen=True)
class AuditEntry(Model):
    """A request that changed something."""

    ts: str = ""
    method: str = ""
    path: str = ""
    status: int = 0
    request_id: str = ""
    token: str = ""
    workspace: str = ""


@dataclass(frozen=True)
class Percentiles(Model):
    """Percentiles of times, in milliseconds."""

    count: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True)
class BootSample(Model):
    """The time of one creation."""

    sandbox_id: str = ""
    template: str = ""
    boot_mode: str = ""
    boot_ms: float = 0.0
    ts: str = ""


def _samples() -> list[BootSample]:
    return []


def _percentiles() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class BootStats(Model):
    """Times of recent creations."""

    total_samples: int = 0
    window_seconds: int = 0
    overall: Percentiles = field(default_factory=Percentiles)
    by_mode: dict[str, Any] = field(default_factory=_percentiles)
    by_template: dict[str, Any] = field(default_factory=_percentiles)
    recent: list[BootSample] = field(default_factory=_samples)
    _nested: ClassVar[dict[str, type[Model]]] = {"overall": Percentiles, "recent": BootSample}


@dataclass(frozen=True)
class Version(Model):
    """Which program answers."""

    service: str = ""
    version: str = ""
    semver: str = ""
    commit: str = ""
    built_at: str = ""
    build_time: str = ""
    os: str = ""
    arch: str = ""


@dataclass(frozen=True)
class Health(Model):
    """Whether the server can work."""

    status: str = ""
    checks: dict[str, str] = field(default_factory=_words)

"""Real machines for AI agents: sandboxes that are VMs of their own, forkable while they run, asleep when idle.

    from pandastack import PandaStack

    with PandaStack() as client, client.sandboxes.create(template="base") as sandbox:
        print(sandbox.exec("uname -a").stdout)

:class:`AsyncPandaStack` is the same with ``await``.
"""

from __future__ import annotations

# So that `pandastack.sandbox` and the like are there, as in earlier versions.
from . import apps, databases, functions, sandbox, schedules, snapshots, templates, tokens, volumes  # noqa: F401 # pyright: ignore[reportUnusedImport]
from ._async.apps import AsyncApps
from ._async.builds import AsyncTemplates
from ._async.client import AsyncPandaStack
from ._async.contexts import AsyncCodeContext
from ._async.databases import AsyncDatabases
from ._async.default import get_default_async_client, set_default_async_client
from ._async.exploring import AsyncExploreResult
from ._async.files import AsyncFilesystem
from ._async.functions import AsyncFunctions, AsyncSchedules
from ._async.output import AsyncOutputStream
from ._async.processes import AsyncProcess, AsyncProcesses
from ._async.resources import AsyncSandboxes, AsyncSnapshots, AsyncTokens, AsyncVolumes
from ._async.sandbox import AsyncSandbox, AsyncSandboxCommands
from ._async.terminal import AsyncTerminal
from ._async.tunnel import AsyncTunnel
from ._async.watching import AsyncWatch
from ._execution import Execution, Result
from ._retry import CreateRetryEvent
from ._sync.apps import Apps
from ._sync.builds import Templates
from ._sync.client import PandaStack
from ._sync.contexts import CodeContext
from ._sync.databases import Databases
from ._sync.default import get_default_client, set_default_client
from ._sync.files import Filesystem
from ._sync.functions import Functions, Schedules
from ._sync.output import OutputStream
from ._sync.processes import Process, Processes
from ._sync.resources import Sandboxes, Snapshots, Tokens, Volumes
from ._sync.sandbox import Sandbox, SandboxCommands
from ._sync.terminal import Terminal
from ._sync.tunnel import Tunnel
from ._sync.watching import Watch
from ._version import __version__
from .client import Client
from .cma import CmaConfig, Worker
from .exceptions import (
    APIConnectionError,
    APITimeoutError,
    AuthError,
    BadRequestError,
    CapacityError,
    CommandFailed,
    ConflictError,
    ConnectionError,
    CreateCancelled,
    ExecInterrupted,
    ExploreError,
    NotFoundError,
    PandastackError,
    PermissionDeniedError,
    RateLimitError,
    SandboxTimeout,
    ServerError,
    TemplateBuildError,
    TerminalError,
)
from .explore import BranchOutcome, Candidate, ExploreResult, explore
from .models import (
    Ancestor,
    AttachedVolume,
    AuditEntry,
    BootStats,
    ContextInfo,
    DeletedSandboxes,
    DeviceMetrics,
    Event,
    ExecResult,
    FileChange,
    FileInfo,
    FileWritten,
    GuestMetrics,
    Health,
    Lifecycle,
    Me,
    Output,
    Port,
    Preview,
    ProcessInfo,
    Progress,
    Promotion,
    SandboxInfo,
    SandboxMetrics,
    SandboxTree,
    Snapshot,
    Template,
    TemplateBuild,
    Token,
    TransferProgress,
    TreeNode,
    TreeSnapshot,
    Version,
    Volume,
    VolumeMount,
)

# Names of earlier versions.
SandboxFilesystem = Filesystem
AppsAPI = Apps
DatabasesAPI = Databases
FunctionsAPI = Functions
SandboxAPI = Sandboxes
SchedulesAPI = Schedules
SnapshotsAPI = Snapshots
TemplatesAPI = Templates
TokensAPI = Tokens
VolumesAPI = Volumes

__all__ = [
    "APIConnectionError",
    "APITimeoutError",
    "Ancestor",
    "Apps",
    "AppsAPI",
    "AsyncApps",
    "AsyncCodeContext",
    "AsyncDatabases",
    "AsyncExploreResult",
    "AsyncFilesystem",
    "AsyncFunctions",
    "AsyncOutputStream",
    "AsyncPandaStack",
    "AsyncProcess",
    "AsyncProcesses",
    "AsyncSandbox",
    "AsyncSandboxCommands",
    "AsyncSandboxes",
    "AsyncSchedules",
    "AsyncSnapshots",
    "AsyncTemplates",
    "AsyncTerminal",
    "AsyncTokens",
    "AsyncTunnel",
    "AsyncVolumes",
    "AsyncWatch",
    "AttachedVolume",
    "AuditEntry",
    "AuthError",
    "BadRequestError",
    "BootStats",
    "BranchOutcome",
    "Candidate",
    "CapacityError",
    "Client",
    "CmaConfig",
    "CodeContext",
    "CommandFailed",
    "ConflictError",
    "ConnectionError",
    "ContextInfo",
    "CreateCancelled",
    "CreateRetryEvent",
    "Databases",
    "DatabasesAPI",
    "DeletedSandboxes",
    "DeviceMetrics",
    "Event",
    "ExecInterrupted",
    "ExecResult",
    "Execution",
    "ExploreError",
    "ExploreResult",
    "FileChange",
    "FileInfo",
    "FileWritten",
    "Filesystem",
    "Functions",
    "FunctionsAPI",
    "GuestMetrics",
    "Health",
    "Lifecycle",
    "Me",
    "NotFoundError",
    "Output",
    "OutputStream",
    "PandaStack",
    "PandastackError",
    "PermissionDeniedError",
    "Port",
    "Preview",
    "Process",
    "ProcessInfo",
    "Processes",
    "Progress",
    "Promotion",
    "RateLimitError",
    "Result",
    "Sandbox",
    "SandboxAPI",
    "SandboxCommands",
    "SandboxFilesystem",
    "SandboxInfo",
    "SandboxMetrics",
    "SandboxTimeout",
    "SandboxTree",
    "Sandboxes",
    "Schedules",
    "SchedulesAPI",
    "ServerError",
    "Snapshot",
    "Snapshots",
    "SnapshotsAPI",
    "Template",
    "TemplateBuild",
    "TemplateBuildError",
    "Templates",
    "TemplatesAPI",
    "Terminal",
    "TerminalError",
    "Token",
    "Tokens",
    "TokensAPI",
    "TransferProgress",
    "TreeNode",
    "TreeSnapshot",
    "Tunnel",
    "Version",
    "Volume",
    "VolumeMount",
    "Volumes",
    "VolumesAPI",
    "Watch",
    "Worker",
    "__version__",
    "explore",
    "get_default_async_client",
    "get_default_client",
    "set_default_async_client",
    "set_default_client",
]

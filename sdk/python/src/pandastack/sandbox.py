"""Sandboxes, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from ._execution import Execution, Result
from ._sync.contexts import CodeContext
from ._sync.default import get_default_client, set_default_client
from ._sync.files import Filesystem as SandboxFilesystem
from ._sync.resources import Sandboxes as SandboxAPI
from ._sync.sandbox import Sandbox, SandboxCommands
from .models import ExecResult, FileInfo

__all__ = [
    "CodeContext",
    "ExecResult",
    "Execution",
    "FileInfo",
    "Result",
    "Sandbox",
    "SandboxAPI",
    "SandboxCommands",
    "SandboxFilesystem",
    "get_default_client",
    "set_default_client",
]

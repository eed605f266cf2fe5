"""Templates of the default client, under the module name that programs written for earlier versions use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable, List, Optional

from ._local import LocalPath
from ._sync.builds import Templates as TemplatesAPI
from ._sync.default import get_default_client
from .models import Template, TemplateBuild

__all__ = [
    "Template",
    "TemplateBuild",
    "TemplatesAPI",
    "build",
    "build_from_dockerfile",
    "build_logs",
    "delete",
    "get",
    "list",
    "push",
    "register",
    "wait_for_build",
]


def list() -> List[Template]:  # noqa: A001 - the name published clients know
    """All templates."""
    return get_default_client().templates.list()


def get(name: str) -> Template:
    """The template of that name."""
    return get_default_client().templates.get(name)


def delete(name: str) -> None:
    """Deletes a custom template."""
    get_default_client().templates.delete(name)


def build(
    name: str,
    dockerfile_path: Optional[LocalPath] = None,
    rootfs_tar: Optional[LocalPath] = None,
    size_mb: int = 1024,
) -> TemplateBuild:
    """Makes a template of a Dockerfile or an archive, and waits for it."""
    return get_default_client().templates.build(name, dockerfile_path, rootfs_tar, size_mb)


def register(
    name: str,
    image_ref: str,
    *,
    size_mb: int = 1024,
    cpu: Optional[int] = None,
    memory_mb: Optional[int] = None,
    kernel: Optional[str] = None,
) -> TemplateBuild:
    """Makes a template of a container image in a registry. Does not wait."""
    templates = get_default_client().templates
    return templates.register(name, image_ref, size_mb=size_mb, cpu=cpu, memory_mb=memory_mb, kernel=kernel)


def build_from_dockerfile(
    name: str,
    dockerfile: LocalPath,
    *,
    context_dir: Optional[LocalPath] = None,
    cpu: Optional[int] = None,
    memory_mb: Optional[int] = None,
    size_mb: int = 1024,
) -> TemplateBuild:
    """Builds a template from a Dockerfile, on the server. Does not wait."""
    templates = get_default_client().templates
    return templates.build_from_dockerfile(
        name, dockerfile, context_dir=context_dir, cpu=cpu, memory_mb=memory_mb, size_mb=size_mb
    )


def build_logs(build_id: str, *, follow: bool = True) -> Iterator[str]:
    """What a build says, line by line."""
    return get_default_client().templates.build_logs(build_id, follow=follow)


def wait_for_build(build_id: str, *, poll_interval: float = 2.0, timeout_seconds: float = 1200.0) -> TemplateBuild:
    """Waits for the end of a build."""
    templates = get_default_client().templates
    return templates.wait_for_build(build_id, poll_interval=poll_interval, timeout_seconds=timeout_seconds)


def push(
    name: str,
    dockerfile: LocalPath = "Dockerfile",
    *,
    context: Optional[LocalPath] = None,
    platform: Optional[str] = None,
    size_mb: int = 1024,
    cpu: Optional[int] = None,
    memory_mb: Optional[int] = None,
    kernel: Optional[str] = None,
    on_log: Optional[Callable[[str], object]] = None,
    wait: bool = True,
) -> TemplateBuild:
    """Makes a template of a Dockerfile and the files beside it, and waits for it."""
    return get_default_client().templates.push(
        name,
        dockerfile,
        context=context,
        platform=platform,
        size_mb=size_mb,
        cpu=cpu,
        memory_mb=memory_mb,
        kernel=kernel,
        on_log=on_log,
        wait=wait,
    )

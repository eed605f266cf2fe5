"""Templates: those there are, and custom ones."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Callable, List, Optional

from .._bundles import context_parts, dockerfile_text
from .._config import segment
from .._local import LocalPath
from .._runtime_async import call, in_thread, sleep
from ..exceptions import TemplateBuildError
from ..models import Template, TemplateBuild
from .transport import AsyncTransport, items

#: Between two lines of a build.
_LOG_TIMEOUT = 1800.0


class AsyncTemplates:
    """Templates: ``client.templates``."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Template]:
        """All templates."""
        return [Template.from_dict(one) for one in items(await self._transport.request("GET", "/templates"))]

    async def get(self, name: str) -> Template:
        """The template of that name."""
        return Template.from_dict(await self._transport.request("GET", f"/templates/{segment(name)}"))

    async def delete(self, name: str) -> None:
        """Deletes a custom template."""
        await self._transport.request("DELETE", f"/templates/{segment(name)}")

    async def prepare(self, name: str) -> Template:
        """Starts preparing a template ahead of its first use, unless it is ready. Does not wait: see :meth:`wait`."""
        return Template.from_dict(await self._transport.request("POST", f"/templates/{segment(name)}/prepare"))

    async def wait(self, name: str, timeout_seconds: Optional[float] = None) -> Template:
        """Waits until a template is ready: so long, or when absent as long as its preparation makes progress.

        :raises TemplateBuildError: when it is not ready by then, or is not being prepared any more.
        """
        begun = moved = time.monotonic()
        seen: Optional[str] = None
        while True:
            template = await self.get(name)
            if template.status == "ready":
                return template
            if template.status != "preparing":
                raise TemplateBuildError(f"template {name} is {template.status}: {template.progress}", build=template)
            now = time.monotonic()
            at = template.progress_detail.changed_at if template.progress_detail is not None else template.progress
            if at != seen:
                seen, moved = at, now
            since, most = (
                (moved, self._transport.config.template_stall) if timeout_seconds is None else (begun, timeout_seconds)
            )
            if now - since >= most:
                raise TemplateBuildError(f"template {name} is not ready: {template.progress}", build=template)
            await sleep(1.0)

    async def build_from_dockerfile(
        self,
        name: str,
        dockerfile: LocalPath,
        *,
        context_dir: Optional[LocalPath] = None,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        size_mb: int = 1024,
        replace: bool = False,
    ) -> TemplateBuild:
        """Builds a template from a Dockerfile, on the server. Does not wait: see :meth:`wait_for_build`.

            build = await client.templates.build_from_dockerfile("mine", "FROM base\\nRUN echo hello > /hello")
            await client.templates.wait_for_build(build.id)

        :param dockerfile: its path, or its text.
        :param context_dir: a directory whose files ``COPY`` and ``ADD`` can use.
        """
        form = {"dockerfile": await in_thread(lambda: dockerfile_text(dockerfile))}
        files = None if context_dir is None else await in_thread(lambda: context_parts(context_dir))
        return await self._build(name, form, files, size_mb, cpu, memory_mb, None, replace)

    async def register(
        self,
        name: str,
        image_ref: str,
        *,
        size_mb: int = 1024,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        kernel: Optional[str] = None,
        replace: bool = False,
    ) -> TemplateBuild:
        """Makes a template of a container image in a registry. Does not wait: see :meth:`wait_for_build`."""
        return await self._build(name, {"image_ref": image_ref}, None, size_mb, cpu, memory_mb, kernel, replace)

    async def build(
        self,
        name: str,
        dockerfile_path: Optional[LocalPath] = None,
        rootfs_tar: Optional[LocalPath] = None,
        size_mb: int = 1024,
        poll_interval: float = 1.0,
        timeout_seconds: float = 600.0,
        *,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        kernel: Optional[str] = None,
        replace: bool = False,
    ) -> TemplateBuild:
        """Makes a template and waits for it: of a Dockerfile, with the directory it is in as its context, or of an archive of a
        root file system (``tar`` or ``tar.gz``).

        :raises TemplateBuildError: when it fails.
        """
        if dockerfile_path is not None and rootfs_tar is None:
            path = Path(dockerfile_path)
            form = {"dockerfile": await in_thread(lambda: path.read_text(encoding="utf-8"))}
            parts = await in_thread(lambda: context_parts(path.parent))
            started = await self._build(name, form, parts, size_mb, cpu, memory_mb, kernel, replace)
        elif rootfs_tar is not None and dockerfile_path is None:
            path = Path(rootfs_tar)
            file = await in_thread(lambda: path.open("rb"))
            try:
                archive = {"rootfs": (path.name, file, "application/octet-stream")}
                started = await self._build(name, {}, archive, size_mb, cpu, memory_mb, kernel, replace)
            finally:
                file.close()
        else:
            raise ValueError("either dockerfile_path or rootfs_tar, and not both")
        return await self.wait_for_build(started.id, poll_interval=poll_interval, timeout_seconds=timeout_seconds)

    async def push(
        self,
        name: str,
        dockerfile: LocalPath = "Dockerfile",
        *,
        context: Optional[LocalPath] = None,
        size_mb: int = 1024,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        kernel: Optional[str] = None,
        on_log: Optional[Callable[[str], object]] = None,
        wait: bool = True,
        replace: bool = False,
        platform: Optional[str] = None,
        build_id: Optional[str] = None,
        region: Optional[str] = None,
        project: Optional[str] = None,
        repo: Optional[str] = None,
    ) -> TemplateBuild:
        """Makes a template of a Dockerfile and the files beside it, and waits for it.

        The server builds it: no image goes through a registry, and nothing but this package is needed here. ``platform``,
        ``build_id``, ``region``, ``project`` and ``repo`` said where that image went. They are taken and mean nothing.

        :param dockerfile: its path.
        :param context: a directory whose files ``COPY`` and ``ADD`` can use; the Dockerfile's own when absent.
        :param on_log: called with every line that the build says.
        :param wait: without it the build is only started.
        :raises TemplateBuildError: when it fails.
        """
        path = Path(dockerfile)
        form = {"dockerfile": await in_thread(lambda: path.read_text(encoding="utf-8"))}
        folder = path.parent if context is None else context
        parts = await in_thread(lambda: context_parts(folder))
        started = await self._build(name, form, parts, size_mb, cpu, memory_mb, kernel, replace)
        if not wait:
            return started
        async for line in self.build_logs(started.id):
            await call(on_log, line)
        return await self.wait_for_build(started.id)

    async def builds(self) -> List[TemplateBuild]:
        """All builds, newest first."""
        return [TemplateBuild.from_dict(one) for one in items(await self._transport.request("GET", "/templates/builds"))]

    async def get_build(self, build_id: str) -> TemplateBuild:
        """The build of that id."""
        return TemplateBuild.from_dict(await self._transport.request("GET", f"/templates/builds/{segment(build_id)}"))

    async def build_logs(self, build_id: str, *, follow: bool = True) -> AsyncIterator[str]:
        """What a build says, line by line, until it ends; without ``follow`` only what it has said."""
        lines = self._transport.lines(
            f"/templates/builds/{segment(build_id)}/logs", {"follow": "1" if follow else None}, _LOG_TIMEOUT
        )
        async for line in lines:
            yield line

    async def wait_for_build(
        self,
        build_id: str,
        *,
        poll_interval: float = 2.0,
        timeout_seconds: float = 1200.0,
        on_status: Optional[Callable[[TemplateBuild], object]] = None,
    ) -> TemplateBuild:
        """Waits for the end of a build.

        :raises TemplateBuildError: when it fails, or has not ended after that long.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            build = await self.get_build(build_id)
            await call(on_status, build)
            if build.is_done:
                return build
            if build.is_failed:
                raise TemplateBuildError(build.error or "the build failed", build=build)
            if time.monotonic() >= deadline:
                raise TemplateBuildError(f"build {build_id} is still {build.status} after {timeout_seconds:g} s", build=build)
            await sleep(poll_interval)

    async def _build(
        self,
        name: str,
        source: Mapping[str, str],
        files: Optional[Mapping[str, Any]],
        size_mb: int,
        cpu: Optional[int],
        memory_mb: Optional[int],
        kernel: Optional[str],
        replace: bool,
    ) -> TemplateBuild:
        options = {"cpu": cpu, "memory_mb": memory_mb, "kernel": kernel, "replace": "true" if replace else None}
        form = {"name": name, **source, "size_mb": str(size_mb)}
        form.update({key: str(value) for key, value in options.items() if value is not None})
        return TemplateBuild.from_dict(await self._transport.send_form("/templates/build", form, files))

"""A sandbox."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, ClassVar, List, Optional, Union

import httpx

from .._cleanup import set_aside
from .._config import preview_scheme, segment
from .._execution import Execution, Result
from .._exploring import BranchOutcome, Candidate, Select
from .._hints import hint_here
from .._json import as_list, as_object
from .._runtime_async import CancelEvent
from .._warnings import warn_of
from ..exceptions import CommandFailed, NotFoundError, ServerError
from ..models import (
    AttachedVolume,
    ContextInfo,
    Event,
    ExecResult,
    Lifecycle,
    Port,
    Preview,
    Progress,
    Promotion,
    SandboxInfo,
    SandboxMetrics,
    SandboxTree,
    Snapshot,
)
from . import exploring
from .contexts import CELL_SECONDS, AsyncCodeContext, run_cell, too_late
from .default import get_default_async_client
from .files import AsyncFilesystem
from .output import AsyncOutputStream
from .processes import AsyncProcesses
from .terminal import AsyncTerminal
from .transport import STREAM_TIMEOUT
from .tunnel import AsyncTunnel

if TYPE_CHECKING:
    from .client import AsyncPandaStack
    from .resources import VolumeRequest


class _Unchanged:
    """Stands for an argument that was not given, where ``None`` means something else."""

    def __repr__(self) -> str:
        return "UNCHANGED"


_UNCHANGED: Any = _Unchanged()


class AsyncSandbox:
    """A virtual machine.

        async with await client.sandboxes.create(template="base") as sandbox:
            result = await sandbox.exec("uname -a")
            print(result.stdout, result.exit_code)

    Within ``async with`` it is deleted at the end, unless it is persistent. When the block fails and so does that, the error is
    the block's, with a note of what was not deleted. Its fields (``status``, ``metadata``, …) are as
    the server last described them; :meth:`refresh` asks again.
    """

    #: What a sandbox is made from when nothing is named.
    default_template: ClassVar[str] = "code-interpreter"

    def __init__(self, client: AsyncPandaStack, info: SandboxInfo) -> None:
        self._client = client
        self._transport = client._transport  # pyright: ignore[reportPrivateUsage]
        self._path = f"/sandboxes/{segment(info.id)}"
        self.info = info
        #: Its files.
        self.filesystem = AsyncFilesystem(self._transport, self._path)
        #: The same.
        self.files = self.filesystem
        #: Its background processes.
        self.processes = AsyncProcesses(self._transport, self._path)
        #: ``commands.run`` is ``exec``.
        self.commands = AsyncSandboxCommands(self)

    @classmethod
    def from_dict(cls, data: Any, client: AsyncPandaStack, persistent: bool = False) -> AsyncSandbox:
        """A sandbox from decoded JSON, such as another program kept. Sends no request."""
        return cls(client, SandboxInfo.from_dict({"persistent": persistent, **as_object(data)}))

    @classmethod
    async def create(
        cls,
        template: Optional[str] = None,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        metadata: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        persistent: bool = False,
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
    ) -> AsyncSandbox:
        """Makes a sandbox with the default client. Arguments as for ``client.sandboxes.create``, in an order of their own."""
        return await get_default_async_client().sandboxes.create(
            template,
            cpu,
            memory_mb,
            ttl_seconds,
            persistent,
            metadata,
            from_snapshot,
            volumes,
            env=env,
            network=network,
            disk_gb=disk_gb,
            name=name,
            cancel=cancel,
            on_progress=on_progress,
            max_create_wait_seconds=max_create_wait_seconds,
        )

    @classmethod
    async def list(cls) -> List[AsyncSandbox]:
        """All sandboxes of the default client."""
        return await get_default_async_client().sandboxes.list()

    @classmethod
    async def get(cls, sandbox_id: str) -> AsyncSandbox:
        """A sandbox of the default client, by id, name, or beginning of an id."""
        return await get_default_async_client().sandboxes.get(sandbox_id)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"name={self.name!r}, "
        return f"{type(self).__name__}(id={self.id!r}, {name}template={self.template!r}, status={self.status!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncSandbox) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    # What it is.

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def name(self) -> Optional[str]:
        """The name it was given, which stands wherever its id does."""
        return self.info.name

    @property
    def template(self) -> str:
        """The template it was made from."""
        return self.info.template

    @property
    def status(self) -> str:
        """``running``, ``paused``, ``hibernated``, … when the server was last asked."""
        return self.info.status

    @property
    def metadata(self) -> dict[str, str]:
        """Its metadata; of forks also where they come from."""
        return self.info.metadata

    @property
    def persistent(self) -> bool:
        """Whether it sleeps when idle instead of being deleted."""
        return self.info.persistent

    @property
    def ttl_seconds(self) -> int:
        """Seconds of idleness after which it is deleted, or put to sleep if it is persistent."""
        return self.info.ttl_seconds

    @property
    def cpu(self) -> int:
        """Virtual CPUs."""
        return self.info.cpu

    @property
    def memory_mb(self) -> int:
        """Memory in MiB."""
        return self.info.memory_mb

    @property
    def disk_gb(self) -> int:
        """Size of its root disk in GiB."""
        return self.info.disk_gb

    @property
    def parent_id(self) -> Optional[str]:
        """The sandbox it was forked from."""
        return self.info.parent_id

    @property
    def ancestors(self) -> List[str]:
        """Ids of the sandboxes it comes from, deleted ones included: the oldest first. See :meth:`tree` for more."""
        return self.info.ancestors

    @property
    def guest_ip(self) -> Optional[str]:
        """Its address, while it has one."""
        return self.info.guest_ip

    @property
    def created_at(self) -> str:
        """When it was made."""
        return self.info.created_at

    @property
    def from_snapshot(self) -> Optional[str]:
        """The snapshot it was made from, if one was named."""
        return self.info.from_snapshot

    @property
    def boot_ms(self) -> Optional[int]:
        """How long its creation took, in milliseconds."""
        return self.info.boot_ms

    @property
    def boot_mode(self) -> str:
        """How it came to be."""
        return self.info.boot_mode

    @property
    def volumes(self) -> List[AttachedVolume]:
        """Its volumes."""
        return self.info.volumes

    async def refresh(self) -> AsyncSandbox:
        """Asks the server how it is."""
        self.info = SandboxInfo.from_dict(await self._transport.request("GET", self._path))
        return self

    # Its life.

    async def delete(self) -> None:
        """Deletes it. It is gone, with its disk and memory."""
        await self._transport.request("DELETE", self._path, timeout=self._transport.machine_patience())
        self._became("deleted")

    async def kill(self) -> None:
        """The same as :meth:`delete`."""
        await self.delete()

    async def pause(self) -> None:
        """Stops its CPUs; memory stays where it is."""
        await self._post("pause")
        self._became("paused")

    async def resume(self) -> None:
        """Lets it go on."""
        await self._post("resume")
        self._became("running")

    async def hibernate(self) -> None:
        """Puts it to sleep: memory and disk are kept, the machine is gone. Whatever uses it wakes it."""
        await self._post("hibernate")
        self._became("hibernated")

    async def wake(self, *, cold: bool = False) -> None:
        """Wakes it. Nothing happens when it is awake.

        :param cold: boot it from its disk: its files are kept, what was in its memory is lost. For a sandbox whose machine
            ended, or whose memory cannot be used any more; errors of such a sandbox say so in their ``hint``.
        """
        if cold:
            await self._post("start", {"cold": True})
        else:
            await self._post("wake")
        self._became("running")

    async def lifecycle(self) -> Lifecycle:
        """How long it may idle, and how long it has."""
        return Lifecycle.from_dict(await self._transport.request("GET", f"{self._path}/lifecycle"))

    async def set_ttl(self, seconds: int) -> Lifecycle:
        """After so many seconds of idleness it is deleted, or put to sleep if it is persistent."""
        return await self._set_lifecycle({"ttl_seconds": seconds})

    async def set_persistent(self, persistent: bool) -> Lifecycle:
        """Whether it sleeps when idle instead of being deleted."""
        return await self._set_lifecycle({"persistent": persistent})

    async def patch(
        self,
        *,
        metadata: Optional[Mapping[str, Optional[str]]] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        network: Optional[str] = None,
        name: Optional[str] = _UNCHANGED,
    ) -> AsyncSandbox:
        """Changes it: what is ``None`` within ``metadata`` and ``env`` is removed, what is absent stays.

        :param env: variables of commands started from now on.
        :param network: ``"none"`` or ``"all"``.
        :param name: a new name; ``None`` removes it.
        """
        body: dict[str, Any] = {}
        if name is not _UNCHANGED:
            body["name"] = name
        if metadata is not None:
            body["metadata"] = dict(metadata)
        if env is not None:
            body["env"] = dict(env)
        if network is not None:
            body["network"] = network
        self.info = SandboxInfo.from_dict(await self._transport.request("PATCH", self._path, json=body))
        return warned(self)

    # Commands and code.

    async def exec(
        self,
        cmd: Union[str, Sequence[str]],
        timeout_seconds: Optional[float] = None,
        check: bool = False,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: Optional[str] = None,
        user: Optional[str] = None,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
    ) -> ExecResult:
        """Runs a command and waits for its end.

            result = await sandbox.exec("pip install flask", timeout_seconds=300, on_stdout=print)
            assert result.exit_code == 0, result.stderr
            await sandbox.exec(["ls", "-d", "/root"])

        :param cmd: a line for the shell, or a program with its arguments, which no shell looks at.
        :param timeout_seconds: after this long it is killed, with everything it started.
        :param check: raise :class:`CommandFailed` when it does not exit with 0.
        :param on_stdout: called with each piece of output as it arrives; so is ``on_stderr``.
        :raises SandboxTimeout: when it takes longer than ``timeout_seconds``; with what it wrote until then.
        """
        body = _command(cmd, timeout_seconds, cwd, env, stdin, user)
        if on_stdout is not None or on_stderr is not None:
            result = await self._stream(body).result(on_stdout, on_stderr)
        else:
            wait = None if timeout_seconds is None else timeout_seconds + self._transport.timeout
            try:
                answer = await self._transport.request(
                    "POST", f"{self._path}/exec", json=body, timeout=self._transport.patience(wait), warm_up=True
                )
            except ServerError as error:
                raise too_late(error) or error from None
            result = ExecResult.from_dict(answer)
            result = dataclasses.replace(result, hint=hint_here(result.hint))
        if check and not result.ok:
            raise CommandFailed(
                f"exit code {result.exit_code} of: {cmd if isinstance(cmd, str) else shlex.join(cmd)}",
                hint=result.hint,
                exit_code=result.exit_code,
                stdout=result.stdout,
                stderr=result.stderr,
            )
        return result

    def stream(
        self,
        cmd: Union[str, Sequence[str]],
        timeout_seconds: Optional[float] = None,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: Optional[str] = None,
        user: Optional[str] = None,
    ) -> AsyncOutputStream:
        """Runs a command, given as for :meth:`exec`; its output is read by iterating.

            async for piece in sandbox.stream("for i in 1 2 3; do echo $i; sleep 1; done"):
                print(piece.stream, piece.text)

        :raises ExecInterrupted: while iterating, when the stream ends before the command's exit code.
        """
        return self._stream(_command(cmd, timeout_seconds, cwd, env, stdin, user))

    async def exec_stream(
        self,
        cmd: Union[str, Sequence[str]],
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        timeout_seconds: Optional[float] = None,
    ) -> int:
        """Runs a command, calling back with its output; gives its exit code."""
        return (await self.stream(cmd, timeout_seconds).result(on_stdout, on_stderr)).exit_code

    async def run_code(
        self,
        code: str,
        language: str = "python",
        timeout_seconds: Optional[float] = None,
        *,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        on_result: Optional[Callable[[Result], object]] = None,
        context: Union[AsyncCodeContext, str, None] = None,
        once: bool = False,
    ) -> Execution:
        """Runs code. What it defines stays: each language has a default context in the sandbox, made at its first use.

            await sandbox.run_code("x = 41")
            print((await sandbox.run_code("x + 1")).text)   # 42

        Code that raises is no exception here: see ``error``.

        :param language: ``python``, ``javascript``, ``typescript`` or ``bash``. Others, such as ``ruby``, run once.
        :param timeout_seconds: after this long it is interrupted; 30 when absent.
        :param on_stdout: called with each piece of output as it arrives; so is ``on_stderr``.
        :param on_result: called with each :class:`Result`, such as a plot, when the code shows it.
        :param context: another context, or its id; then ``language`` does not matter.
        :param once: run in a new interpreter, which forgets everything: see :meth:`run_once`.
        :raises SandboxTimeout: when it takes longer, with what it wrote until then.
        """
        if once or (context is None and language.lower() in _ONLY_ONCE):
            if on_stdout is not None or on_stderr is not None or on_result is not None or (once and context is not None):
                raise ValueError("code that runs once has no context, and its output comes at the end")
            return await self.run_once(code, language, timeout_seconds)
        body: dict[str, Any] = {"code": code}
        if context is None:
            body["language"] = _language(language)
            name = "default"
        else:
            name = context if isinstance(context, str) else context.id
        return await run_cell(
            self._transport,
            f"{self._path}/repl/sessions/{segment(name)}",
            body,
            timeout_seconds,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            warm_up=True,
        )

    async def run_once(self, code: str, language: str = "python", timeout_seconds: Optional[float] = None) -> Execution:
        """Runs code in a new interpreter, which forgets everything afterwards. ``exit_code`` is that of the interpreter."""
        body: dict[str, Any] = {"language": language, "code": code}
        if timeout_seconds is not None:
            body["timeout_ms"] = int(timeout_seconds * 1000)
        wait = (CELL_SECONDS if timeout_seconds is None else timeout_seconds) + self._transport.timeout
        try:
            answer = await self._transport.request(
                "POST", f"{self._path}/repl", json=body, timeout=self._transport.patience(wait), warm_up=True
            )
        except ServerError as error:
            raise too_late(error) or error from None
        return Execution.from_dict(answer)

    async def create_code_context(self, language: str = "python", cwd: Optional[str] = None) -> AsyncCodeContext:
        """Starts an interpreter that keeps its state from cell to cell."""
        body: dict[str, Any] = {"language": _language(language)}
        if cwd is not None:
            body["cwd"] = cwd
        answer = await self._transport.request(
            "POST",
            f"{self._path}/repl/sessions",
            json=body,
            timeout=self._transport.machine_patience(),
            warm_up=True,
        )
        return AsyncCodeContext(self._transport, self._path, ContextInfo.from_dict(answer))

    async def code_contexts(self) -> List[AsyncCodeContext]:
        """The contexts there are, to go on with."""
        answer = as_list(await self._transport.request("GET", f"{self._path}/repl/sessions"))
        return [AsyncCodeContext(self._transport, self._path, ContextInfo.from_dict(one)) for one in answer]

    def terminal(
        self, *, rows: int = 24, cols: int = 80, cwd: Optional[str] = None, term: Optional[str] = None
    ) -> AsyncTerminal:
        """A login shell in a terminal, for use with ``async with``."""
        return AsyncTerminal(self._transport, f"{self._path}/exec/pty", rows=rows, cols=cols, cwd=cwd, term=term)

    # Instants.

    async def snapshot(self) -> str:
        """Keeps this instant, memory and disk; gives the snapshot's id.

        then = await sandbox.snapshot()
        again = await client.sandboxes.create(from_snapshot=then)
        """
        answer = await self._transport.request("POST", f"{self._path}/snapshots", timeout=self._transport.machine_patience())
        return Snapshot.from_dict(answer).id

    async def snapshots(self) -> List[Snapshot]:
        """Its snapshots, newest first."""
        return await self._client.snapshots.list(sandbox_id=self.id)

    async def fork(
        self,
        metadata: Optional[Mapping[str, str]] = None,
        *,
        cancel: Optional[CancelEvent] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        max_create_wait_seconds: Optional[float] = None,
    ) -> AsyncSandbox:
        """A second sandbox that goes on from this instant, memory and all. This one goes on as well."""
        return await self._client.sandboxes.fork(
            self.id,
            metadata=metadata,
            cancel=cancel,
            on_progress=on_progress,
            max_create_wait_seconds=max_create_wait_seconds,
        )

    async def fork_tree(
        self,
        count: int,
        metadata: Optional[Mapping[str, str]] = None,
        *,
        cancel: Optional[CancelEvent] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        max_create_wait_seconds: Optional[float] = None,
    ) -> List[AsyncSandbox]:
        """Several sandboxes that go on from the same instant. There may be fewer than asked for, when room runs out."""
        return await self._client.sandboxes.fork_tree(
            self.id,
            count,
            metadata=metadata,
            cancel=cancel,
            on_progress=on_progress,
            max_create_wait_seconds=max_create_wait_seconds,
        )

    async def tree(self) -> SandboxTree:
        """Where it comes from and what comes from it.

        for node in (await sandbox.tree()).tree.walk():
            print(node.id, node.name, node.status, len(node.children))
        """
        return SandboxTree.from_dict(await self._transport.request("GET", f"{self._path}/tree"))

    async def promote(self, *, cleanup_siblings: bool = False, tree_id: Optional[str] = None) -> Promotion:
        """Makes a child of a fork independent; with ``cleanup_siblings`` its siblings are deleted."""
        return await self._client.sandboxes.promote(self.id, cleanup_siblings=cleanup_siblings, tree_id=tree_id)

    async def explore(
        self,
        candidates: Sequence[Union[Candidate, str]],
        *,
        score_fn: Optional[Callable[[AsyncSandbox, BranchOutcome], Any]] = None,
        select: Select = "max",
        require_success: bool = True,
        max_concurrency: Optional[int] = None,
        cleanup_losers: bool = True,
        promote_winner: bool = True,
        capture_files: Union[bool, str] = True,
        ttl_seconds: int = 600,
        on_outcome: Optional[Callable[[BranchOutcome], object]] = None,
    ) -> exploring.AsyncExploreResult:
        """Best of N: forks as many ways as there are candidates, runs each in its branch, keeps the best.

            result = await sandbox.explore(
                ["python solve.py --greedy", "python solve.py --dp"],
                score_fn=lambda branch, outcome: float(outcome.stdout_tail),
            )
            print(result.table())
            best = result.winner

        :param candidates: commands, or :class:`Candidate` for more than that; 16 at most.
        :param score_fn: gives a branch its score; without one, those that succeed get 1.
        :param select: ``"max"``, ``"min"``, or a function that picks an outcome.
        :param require_success: never pick a branch that failed.
        :param max_concurrency: how many run at once; 4 when absent.
        :param cleanup_losers: delete the other branches.
        :param capture_files: list the files that each branch changed; a path says where to look.
        :param ttl_seconds: what becomes orphaned is deleted after so long.
        :raises ExploreError: when no branch did well. All branches are deleted then.
        """
        return await exploring.explore(
            self,
            candidates,
            score_fn=score_fn,
            select=select,
            require_success=require_success,
            max_concurrency=max_concurrency,
            cleanup_losers=cleanup_losers,
            promote_winner=promote_winner,
            capture_files=capture_files,
            ttl_seconds=ttl_seconds,
            on_outcome=on_outcome,
        )

    # Looking at it.

    async def logs(self, stream: str = "both", follow: bool = False, tail: Optional[int] = None) -> AsyncIterator[str]:
        """The lines of its console; with ``follow`` also those to come, until it is deleted."""
        params = {"stream": stream, "follow": "true" if follow else "false", "tail": tail}
        response = await self._transport.open(
            "GET",
            f"{self._path}/logs",
            params=params,
            headers={"Accept": "text/event-stream" if follow else "text/plain"},
            timeout=self._transport.patience(STREAM_TIMEOUT if follow else self._transport.timeout),
        )
        if follow:
            async for event in self._transport.events(response):
                data = event.json()
                yield str(data.get("line", data.get("chunk", event.data))).rstrip("\r\n")
        else:
            text = (await self._transport.read(response)).decode("utf-8", "replace")
            lines = text.split("\n")
            for line in lines if lines[-1] else lines[:-1]:
                yield line.rstrip("\r")

    async def events(self, tail: Optional[int] = None) -> List[Event]:
        """What happened to it, oldest first: the newest 50, or so many as ``tail`` says."""
        answer = await self._transport.request("GET", f"{self._path}/events", params={"tail": tail})
        return [Event.from_dict(one) for one in as_list(as_object(answer).get("events"))]

    async def follow_events(self, tail: Optional[int] = None) -> AsyncIterator[Event]:
        """What happened to it, and what happens from now on, until it is deleted."""
        response = await self._transport.open(
            "GET",
            f"{self._path}/events",
            params={"tail": tail, "follow": "1"},
            headers={"Accept": "text/event-stream"},
            timeout=self._transport.patience(STREAM_TIMEOUT),
        )
        async for event in self._transport.events(response):
            yield Event.from_dict(event.json())

    async def metrics(self) -> SandboxMetrics:
        """What it costs its host, and what its guest sees."""
        return SandboxMetrics.from_dict(await self._transport.request("GET", f"{self._path}/metrics"))

    # Its ports.

    async def ports(self) -> List[Port]:
        """Ports that something listens on, and those named by hand."""
        answer = as_list(await self._transport.request("GET", f"{self._path}/ports"))
        return [Port.from_dict(one) for one in answer]

    async def add_port(self, port: int, label: Optional[str] = None) -> Port:
        """Names a port."""
        body: dict[str, Any] = {"port": port}
        if label is not None:
            body["label"] = label
        return Port.from_dict(await self._transport.request("POST", f"{self._path}/ports", json=body))

    async def remove_port(self, port: int) -> None:
        """Forgets a port that was named by hand."""
        await self._transport.request("DELETE", f"{self._path}/ports/{segment(port)}")

    async def preview(self, port: int, *, ttl_seconds: Optional[int] = None, paths: Optional[Sequence[str]] = None) -> Preview:
        """A link to a port that works without a key, for an hour or as long as said.

            print((await sandbox.preview(8000)).url)

        :param paths: limits it to these paths and what is below them.
        """
        body: dict[str, Any] = {"port": port}
        if ttl_seconds is not None:
            body["ttl_seconds"] = ttl_seconds
        if paths is not None:
            body["paths"] = list(paths)
        return Preview.from_dict(await self._transport.request("POST", f"{self._path}/preview-token", json=body))

    def tunnel(self, port: int, *, local_port: int = 0, host: str = "127.0.0.1") -> AsyncTunnel:
        """A port of this machine that leads to a port of the sandbox, for any protocol over TCP. For use with ``async with``.

            async with sandbox.tunnel(5432) as tunnel:
                print("listening on 127.0.0.1, port", tunnel.local_port)

        Each connection here becomes one to that port of the sandbox's ``127.0.0.1``. Port 22 is one of them.

        :param local_port: the port here; a free one when 0.
        :param host: the address to listen on here.
        """
        if isinstance(port, bool) or not 1 <= port <= 65535:
            raise ValueError(f"a port is a number from 1 to 65535, not {port!r}")
        return AsyncTunnel(self._transport, f"{self._path}/ports/{port}/tcp", port, host, local_port)

    def port_forward(self, port: int, *, local_port: int = 0, host: str = "127.0.0.1") -> AsyncTunnel:
        """The same as :meth:`tunnel`."""
        return self.tunnel(port, local_port=local_port, host=host)

    def preview_url(self, port: int, scheme: Optional[str] = None) -> str:
        """The address of a port by host name, on servers that have previews by name. It is worked out, not asked for.

            print(sandbox.preview_url(8000))

        A server on this host has them under ``localhost``, which browsers and curl find by themselves. For a link that works on
        every server and with every program see :meth:`preview`.

        :param scheme: ``https``, or that of the server if it is on this host.
        """
        if isinstance(port, bool) or not 1 <= port <= 65535:
            raise ValueError(f"a port is a number from 1 to 65535, not {port!r}")
        host = self._client.preview_host
        scheme = scheme or preview_scheme(self._client.base_url, host)
        return f"{scheme}://{port}-{self.id}.{host}"

    async def preview_urls(self) -> dict[int, str]:
        """:meth:`preview_url` for each port."""
        return {one.port: self.preview_url(one.port) for one in await self.ports()}

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if not self.persistent:
            try:
                await self.delete()
            except NotFoundError:
                pass  # It is gone, which is what was wanted.
            except Exception as failure:
                if error is None:
                    raise
                # The error of the block says more. The sandbox ends when it has idled for its time.
                set_aside(error, f"sandbox {self.id} was not deleted", failure)

    def _became(self, status: str) -> None:
        self.info = dataclasses.replace(self.info, status=status)

    async def _post(self, verb: str, body: Optional[Mapping[str, Any]] = None) -> None:
        await self._transport.request("POST", f"{self._path}/{verb}", json=body, timeout=self._transport.machine_patience())

    async def _set_lifecycle(self, body: Mapping[str, Any]) -> Lifecycle:
        answer = await self._transport.request("PATCH", f"{self._path}/lifecycle", json=body)
        now = Lifecycle.from_dict(answer)
        self.info = dataclasses.replace(self.info, ttl_seconds=now.ttl_seconds, persistent=now.persistent)
        return now

    def _stream(self, body: Mapping[str, Any]) -> AsyncOutputStream:
        allowed: float = body.get("timeout_seconds") or 0.0

        def opening() -> Awaitable[httpx.Response]:
            return self._transport.open(
                "POST",
                f"{self._path}/exec/stream",
                json=body,
                headers={"Accept": "text/event-stream"},
                timeout=self._transport.patience(max(self._transport.timeout, allowed, STREAM_TIMEOUT)),
            )

        return AsyncOutputStream(self._transport, opening)


class AsyncSandboxCommands:
    """``sandbox.commands.run(cmd)`` is ``sandbox.exec(cmd)``."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run(self, cmd: Union[str, Sequence[str]], timeout: Optional[float] = None) -> ExecResult:
        """Runs a command."""
        return await self._sandbox.exec(cmd, timeout_seconds=timeout)


_LANGUAGES = {"py": "python", "python3": "python"}

#: Languages that have no contexts.
_ONLY_ONCE = ("ruby", "rb")


def _language(name: str) -> str:
    return _LANGUAGES.get(name.lower(), name.lower())


def warned(sandbox: AsyncSandbox) -> AsyncSandbox:
    """A sandbox about which the server may have warned; that is said."""
    warn_of(sandbox.info.warnings)
    return sandbox


def _command(
    cmd: Union[str, Sequence[str]],
    timeout_seconds: Optional[float],
    cwd: Optional[str],
    env: Optional[Mapping[str, str]],
    stdin: Optional[str],
    user: Optional[str],
) -> dict[str, Any]:
    body = {
        "cmd": cmd if isinstance(cmd, str) else list(cmd),
        "timeout_seconds": timeout_seconds,
        "cwd": cwd,
        "env": None if env is None else dict(env),
        "stdin": stdin,
        "user": user,
    }
    return {key: value for key, value in body.items() if value is not None}

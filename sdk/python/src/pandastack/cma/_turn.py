"""One turn of a session: its sandbox made or woken, the runner in it, outputs collected, the sandbox put to sleep."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from enum import Enum
from typing import Any, Callable, Coroutine, Optional, TypeVar

import httpx

from .._async.client import AsyncPandaStack
from .._async.sandbox import AsyncSandbox
from .._local import safe_name
from ..exceptions import BadRequestError, NotFoundError, PandastackError
from ._config import CmaConfig
from ._outputs import collect
from ._relay import LOG, Outcome, Relay
from ._rules import Rules
from ._work import KeyRejected, Lease, Unavailable, Work, WorkQueue

T = TypeVar("T")

#: What a runner is given in place of a key. The worker puts the key on what it sends.
PLACEHOLDER = "kept-by-the-worker"
#: How sandboxes are known again, also to published workers.
SESSION, ENVIRONMENT = "cma.session_id", "cma.environment_id"
#: Seconds that a runner has to end when it is told to, before it is killed.
END_TIMEOUT = 20.0
#: The machines of a session whose sandbox has this status are gone.
_GONE = ("deleted", "failed")


class End(Enum):
    """How a turn came to its end."""

    DONE = "done"
    #: The item belongs to another worker, or was withdrawn.
    LOST = "lost"
    #: The runner ended without ending its item, or could not be started.
    FAILED = "failed"
    #: It took too long.
    TOO_LONG = "too long"
    #: The worker was told to stop.
    HANDED_BACK = "handed back"


class Turn:
    """A turn; :meth:`run` is called once."""

    def __init__(
        self,
        config: CmaConfig,
        client: AsyncPandaStack,
        http: httpx.AsyncClient,
        queue: WorkQueue,
        work: Work,
        log: Callable[[str], None],
    ) -> None:
        self._config = config
        self._client = client
        self._http = http
        self._queue = queue
        self._work = work
        self._lease = Lease(queue, work)
        self._log_line = log
        self._handed_back = asyncio.Event()
        self._stopped_work = False

    def hand_back(self) -> None:
        """Ends the turn without ending its item, which is for another worker then."""
        self._handed_back.set()

    def _log(self, text: str) -> None:
        self._log_line(f"session {self._work.session_id}: {text}")

    async def run(self) -> End:
        """Does it. Errors of the turn are logged, not raised."""
        sandbox: Optional[AsyncSandbox] = None
        try:
            keeper = asyncio.ensure_future(self._lease.keep())
            try:
                sandbox = await self._unless_over(self._sandbox())
                relay = None if sandbox is None else await self._unless_over(self._start(sandbox))
            finally:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
            if relay is None:
                end = End.HANDED_BACK if self._handed_back.is_set() else End.LOST
            else:
                end = await self._follow(relay)
        except KeyRejected:
            raise
        except NotFoundError as error:
            self._log(f"the sandbox is gone ({error.message})")
            return End.FAILED
        except Exception as error:
            self._log(f"failed: {type(error).__name__}: {error}")
            end = End.FAILED
        if sandbox is not None:
            await self._collect(sandbox)
            await self._park(sandbox)
        return end

    @property
    def needs_stop(self) -> bool:
        """Whether nothing has ended the item of work so far, and it is still this worker's."""
        return not self._stopped_work and not self._lease.lost

    async def _unless_over(self, step: Coroutine[Any, Any, T]) -> Optional[T]:
        """Does a step, and ends it when the lease is over or the turn handed back."""
        task = asyncio.ensure_future(step)
        over = [asyncio.ensure_future(event.wait()) for event in (self._lease.ended, self._handed_back)]
        try:
            await asyncio.wait({task, *over}, return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            for one in (task, *over):
                one.cancel()
            await asyncio.gather(task, *over, return_exceptions=True)

    async def _sandbox(self) -> AsyncSandbox:
        mine = [one for one in await self._client.sandboxes.list() if one.metadata.get(SESSION) == self._work.session_id]
        for sandbox in mine:
            if sandbox.status in _GONE:
                continue
            try:
                began = time.monotonic()
                await sandbox.exec("true", timeout_seconds=60)
            except NotFoundError:
                continue
            slept = ", which slept" if sandbox.status == "hibernated" else ""
            self._log(f"sandbox {sandbox.id}{slept}, answers after {_ms(began)}")
            return sandbox
        began = time.monotonic()
        sandbox = await self._create()
        self._log(f"sandbox {sandbox.id} made in {_ms(began)}")
        return sandbox

    async def _create(self) -> AsyncSandbox:
        about = {SESSION: self._work.session_id, ENVIRONMENT: self._config.environment_id}
        create = self._client.sandboxes.create
        try:
            return await create(
                self._config.template,
                ttl_seconds=self._config.sandbox_ttl_seconds,
                metadata=about,
                network=self._config.network,
            )
        except BadRequestError as error:
            if "ttl_seconds" not in error.message:
                raise
            self._log(f"the server does not allow a TTL of {self._config.sandbox_ttl_seconds} s: {error.message}")
            return await create(self._config.template, metadata=about, network=self._config.network)

    async def _start(self, sandbox: AsyncSandbox) -> Relay:
        work, config = self._work, self._config
        if (sandbox.info.network or "none") != config.network:
            await sandbox.patch(network=config.network)
        for warning in sandbox.info.get("warnings", []):
            self._log(f"the server warns: {warning}")
        token = work.token
        env = {
            "ANTHROPIC_ENVIRONMENT_ID": config.environment_id,
            "ANTHROPIC_ENVIRONMENT_KEY": PLACEHOLDER,
            "ANTHROPIC_SESSION_ID": work.session_id,
            "ANTHROPIC_WORK_ID": work.id,
            "HOME": "/root",
            "MISE_DATA_DIR": "/opt/mise",
            "MISE_CONFIG_DIR": "/opt/mise",
            "NO_PROXY": "127.0.0.1",
            "PATH": "/opt/mise/shims:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }
        if token is not None:
            # The runner sees that there is one, and does what it allows.
            secret = json.dumps({"sessions_token": PLACEHOLDER}).encode()
            env["ANTHROPIC_WORK_SECRET"] = base64.urlsafe_b64encode(secret).decode()
        if config.max_idle_seconds is not None:
            env["ANT_MAX_IDLE_SECONDS"] = str(config.max_idle_seconds)
        setup = {
            "command": ["ant", "beta:worker", "run", "--workdir", "/workspace", "--log-format", "json"],
            "cwd": "/workspace",
            "env": env,
            "log": LOG,
        }
        rules = Rules(config.environment_id, work.id, work.session_id)
        relay = await Relay.start(
            sandbox, setup, self._http, config.anthropic_api, token or config.environment_key, rules, self._lease
        )
        self._log(f"runner started in {sandbox.id}")
        return relay

    async def _follow(self, relay: Relay) -> End:
        running = asyncio.ensure_future(relay.run())
        back = asyncio.ensure_future(self._handed_back.wait())
        try:
            await asyncio.wait({running, back}, timeout=self._config.max_session_seconds, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return self._ended(await running)
            end = End.HANDED_BACK if back.done() else End.TOO_LONG
            self._log("the worker stops, the runner is ended" if back.done() else "took too long, the runner is ended")
            await relay.end()
            await asyncio.wait({running}, timeout=END_TIMEOUT)
            if not running.done():
                await relay.kill()
            elif (await running).stopped_work:
                self._stopped_work = True
            return end
        finally:
            back.cancel()
            running.cancel()
            await asyncio.gather(back, running, return_exceptions=True)

    def _ended(self, outcome: Outcome) -> End:
        self._stopped_work = outcome.stopped_work
        self._log(f"runner ended with {outcome.exit_code}")
        if outcome.exit_code != 0:
            for line in outcome.log.splitlines()[-20:]:
                self._log(f"  {LOG}: {line}")
        if outcome.exit_code != 0:
            return End.LOST if self._lease.lost else End.FAILED
        if not outcome.stopped_work:
            # It believes that its lease is over, as when its guest had no time for heartbeats.
            self._log("runner let go of its item, which the queue gives out again")
            return End.LOST
        return End.DONE

    async def _collect(self, sandbox: AsyncSandbox) -> None:
        local = self._config.outputs_dir / safe_name(self._work.session_id)
        try:
            collected = await collect(sandbox, local, self._config.outputs_bytes_max)
        except (PandastackError, OSError) as error:
            self._log(f"outputs could not be collected: {error}")
            return
        if collected.files:
            self._log(f"{collected.files} new or changed files of outputs are in {local}")
        if collected.left_out:
            self._log(f"{collected.left_out} outputs were left out: links, or too much")

    async def _park(self, sandbox: AsyncSandbox) -> None:
        try:
            if self._config.on_idle == "delete":
                await sandbox.delete()
                self._log(f"sandbox {sandbox.id} deleted")
                return
            if self._config.network != "none":
                await sandbox.patch(network="none")
            if self._config.on_idle == "hibernate":
                began = time.monotonic()
                await sandbox.hibernate()
                self._log(f"sandbox {sandbox.id} sleeps after {_ms(began)}")
        except PandastackError as error:
            self._log(f"sandbox {sandbox.id} stays as it is: {error}")


async def stop_quietly(queue: WorkQueue, work: Work, log: Callable[[str], None]) -> None:
    """Ends an item that nothing else ends."""
    try:
        await queue.stop(work)
    except (Unavailable, KeyRejected) as error:
        log(f"work {work.id}: could not be ended: {error}")


def _ms(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"

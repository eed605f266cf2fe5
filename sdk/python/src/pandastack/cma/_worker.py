"""The worker: takes items from the queue, and sees to it that turns come to their end."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from typing import Any, Awaitable, Callable, Dict, Optional, Set

import httpx

from .._async.client import AsyncPandaStack
from .._local import safe_name
from .._retry import CreateRetryEvent
from ..exceptions import PandastackError
from ._config import CmaConfig
from ._turn import End, Turn, stop_quietly
from ._work import KeyRejected, Unavailable, Work, WorkQueue, backoff

#: How often an item may fail until it is ended, so that the queue does not give it out for ever.
FAILURES_MAX = 3
#: Items whose failures are remembered.
_REMEMBERED = 1000
#: How long a template may be made and room be waited for.
CREATE_TIMEOUT = 900.0
#: Seconds between two lines about that.
WAITS_SAID_EVERY = 30.0


def _print(text: str) -> None:
    print(f"[{datetime.now(timezone.utc):%H:%M:%S}] {text}", flush=True)


class Worker:
    """Works for one environment until it is stopped.

    :param config: see :class:`CmaConfig`.
    :param logger: called with each line of the log; they go to standard output when absent.
    """

    def __init__(self, config: CmaConfig, *, logger: Optional[Callable[[str], None]] = None) -> None:
        self.config = config
        self.log = logger or _print
        self._turns: Dict[str, Turn] = {}
        self._tasks: Dict[str, asyncio.Task[None]] = {}
        self._failures: Counter[str] = Counter()
        self._rejected: Optional[KeyRejected] = None
        self._waits_said_at = 0.0
        self._stopping = threading.Event()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._stop: Optional[asyncio.Event] = None

    def run(self, *, install_signal_handlers: bool = True) -> None:
        """Works until it is stopped. SIGINT and SIGTERM stop it, unless ``install_signal_handlers`` is ``False``.

        :raises ValueError: when something is missing from the configuration.
        :raises KeyRejected: when Anthropic does not know the environment's key.
        """
        self.config.check()
        asyncio.run(self._run(install_signal_handlers))
        if self._rejected is not None:
            raise self._rejected

    def stop(self) -> None:
        """Takes no more work; :meth:`run` returns when its turns have ended. From any thread; the second time at once."""
        again = self._stopping.is_set()
        self._stopping.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told_to_stop, again)

    def _told_to_stop(self, again: bool) -> None:
        if self._stop is not None:
            self._stop.set()
        if again:
            for turn in self._turns.values():
                turn.hand_back()

    async def _run(self, install_signal_handlers: bool) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        if install_signal_handlers and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._loop.add_signal_handler(number, self.stop)
        config = self.config
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        client = AsyncPandaStack(
            config.pandastack_token,
            config.pandastack_api,
            timeout=config.client_timeout,
            max_create_retry_seconds=CREATE_TIMEOUT,
            on_create_retry=self._waits,
        )
        async with client, httpx.AsyncClient(limits=limits) as http:
            self.log(f"{config.worker_id} works for {config.environment_id}, {config.max_sessions} sessions at once at most")
            about = f"template {config.template}, network {config.network}, between turns {config.on_idle}"
            self.log(f"{about}, outputs in {config.outputs_dir.resolve()}")
            try:
                await self._work(client, http)
            finally:
                await self._end_turns()
        self.log("stopped")

    def _waits(self, event: CreateRetryEvent) -> None:
        now = time.monotonic()
        if event.attempt == 1 or now - self._waits_said_at >= WAITS_SAID_EVERY:
            self._waits_said_at = now
            self.log(f"no sandbox yet ({event.error}), asking again")

    async def _work(self, client: AsyncPandaStack, http: httpx.AsyncClient) -> None:
        assert self._stop is not None
        queue = WorkQueue(http, self.config)
        failed = 0
        while not self._stop.is_set():
            if len(self._tasks) >= self.config.max_sessions:
                await self._unless_stopped(asyncio.wait(set(self._tasks.values()), return_when=asyncio.FIRST_COMPLETED))
                continue
            pause = random.uniform(0.1, 0.5)
            try:
                work = await queue.poll()
                failed = 0
                if work is not None and await self._take(work, queue, client, http):
                    continue
            except KeyRejected as error:
                self._reject(error)
                return
            except Unavailable as error:
                failed += 1
                pause = max(backoff(failed), error.after or 0.0)
                if failed >= 3 or error.after is not None:
                    self.log(f"the queue cannot be asked ({error}), again in {pause:.0f} s")
            await self._unless_stopped(asyncio.sleep(pause))

    async def _unless_stopped(self, what: Awaitable[Any]) -> None:
        assert self._stop is not None
        tasks: Set[asyncio.Future[Any]] = {asyncio.ensure_future(what), asyncio.ensure_future(self._stop.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _reject(self, error: KeyRejected) -> None:
        self.log(f"Anthropic does not take the environment's key ({error}); look at ANTHROPIC_ENVIRONMENT_KEY")
        self._rejected = error
        if self._stop is not None:
            self._stop.set()

    async def _take(self, work: Work, queue: WorkQueue, client: AsyncPandaStack, http: httpx.AsyncClient) -> bool:
        """Begins a turn, if the item is one; whether another may be asked for at once."""
        session = work.session_id
        if session in self._turns:
            # Not acknowledged, so that it comes again when this turn is over.
            self.log(f"work {work.id}: session {session} is worked on, later")
            return False
        if not await queue.ack(work):
            self.log(f"work {work.id}: cannot be had, another worker may have it")
            return False
        if work.kind != "session" or not _is_name(session):
            # Such as a question whether the worker lives.
            await stop_quietly(queue, work, self.log)
            return True
        self.log(f"work {work.id}: session {session}")
        turn = self._turns[session] = Turn(self.config, client, http, queue, work, self.log)
        task = self._tasks[session] = asyncio.ensure_future(self._turn(turn, queue, work))
        task.add_done_callback(lambda _: self._forget(session))
        return True

    def _forget(self, session: str) -> None:
        self._turns.pop(session, None)
        self._tasks.pop(session, None)

    async def _turn(self, turn: Turn, queue: WorkQueue, work: Work) -> None:
        try:
            end = await turn.run()
        except KeyRejected as error:
            self._reject(error)
            return
        except Exception as error:
            self.log(f"work {work.id}: failed: {type(error).__name__}: {error}")
            end = End.FAILED
        if end is End.FAILED and turn.needs_stop:
            self._failures[work.id] += 1
            if self._failures[work.id] < FAILURES_MAX:
                self.log(f"work {work.id}: left to the queue, which gives it out again when its lease is over")
                return
            self.log(f"work {work.id}: failed {FAILURES_MAX} times, ended")
        if len(self._failures) > _REMEMBERED:
            self._failures.clear()
        self._failures.pop(work.id, None)
        if end in (End.FAILED, End.TOO_LONG) and turn.needs_stop:
            await stop_quietly(queue, work, self.log)

    async def _end_turns(self) -> None:
        """Lets turns come to their end, and hands back those that do not in time."""
        left = set(self._tasks.values())
        if not left:
            return
        self.log(f"stopping: {len(left)} turns have {self.config.stop_seconds:.0f} s to come to their end")
        _, left = await asyncio.wait(left, timeout=self.config.stop_seconds)
        for turn in self._turns.values():
            turn.hand_back()
        if left:
            await asyncio.wait(left)


def _is_name(session: str) -> bool:
    """Whether a session's id can be the name of a directory."""
    try:
        return bool(safe_name(session))
    except PandastackError:
        return False

"""Best of N: fork a sandbox N ways, try something else in each, keep the best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from .. import _exploring
from .._exploring import BranchOutcome, Candidate, Select
from .._runtime_async import call, call_function, each
from ..exceptions import APITimeoutError, ExploreError, PandastackError, SandboxTimeout

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


@dataclass
class AsyncExploreResult:
    """What an experiment found."""

    #: The sandbox of the best branch; ``None`` when it was not to be promoted.
    winner: Optional[AsyncSandbox]
    winner_outcome: BranchOutcome
    #: All branches, from best to worst.
    outcomes: list[BranchOutcome]
    tree_id: str
    #: Ids of the sandboxes that were deleted.
    reaped: list[str] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    #: Those that could not be, and why.
    reap_failures: dict[str, str] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    errors: list[str] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]

    def best(self, n: int = 1) -> list[BranchOutcome]:
        """The best ones."""
        return self.outcomes[:n]

    def table(self) -> str:
        """All branches as a table for people."""
        return _exploring.table(self.outcomes, self.winner_outcome)


async def explore(
    sandbox: AsyncSandbox,
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
) -> AsyncExploreResult:
    """See :meth:`AsyncSandbox.explore`."""
    ways = _exploring.candidates_of(candidates)
    children = await sandbox.fork_tree(len(ways), metadata={"explore": "1", "explore_ttl": str(int(ttl_seconds))})
    errors: list[str] = []
    if len(children) < len(ways):
        errors.append(f"{len(ways)} branches were asked for, {len(children)} came to be")
    tree_id = next((one.metadata["fork_tree_id"] for one in children if "fork_tree_id" in one.metadata), "")

    async def branch(pair: tuple[AsyncSandbox, Candidate]) -> BranchOutcome:
        child, candidate = pair
        outcome = await _run(child, candidate, capture_files)
        if candidate.score is not None:
            outcome.score = float(candidate.score)
        elif score_fn is not None:
            try:
                outcome.score = float(await call_function(score_fn, child, outcome))
            except Exception as error:  # A scorer that fails costs its branch, not the experiment.
                outcome.error = outcome.error or f"score_fn raised {error!r}"
        else:
            outcome.score = 1.0 if outcome.ok else 0.0
        await call(on_outcome, outcome)
        return outcome

    try:
        outcomes = await each(list(zip(children, ways)), branch, max_concurrency or _exploring.AT_ONCE)
        viable = [one for one in outcomes if one.ok or not require_success]
        best = _exploring.pick(viable, select) if viable else None
    except BaseException:
        await _reap(children)
        raise
    if best is None:
        await _reap(children)
        what = ", ".join(f"{one.label}: {one.error or f'exit code {one.exit_code}'}" for one in outcomes)
        raise ExploreError(f"explore: no branch did well ({what or 'none came to be'})")

    winner = next(one for one in children if one.id == best.sandbox_id)
    result = AsyncExploreResult(
        winner=winner if promote_winner else None,
        winner_outcome=best,
        outcomes=_exploring.ranked(outcomes, select, require_success),
        tree_id=tree_id,
        errors=errors,
    )
    if promote_winner:
        try:
            promotion = await winner.promote(cleanup_siblings=cleanup_losers, tree_id=tree_id or None)
            result.reaped = list(promotion.deleted)
            result.reap_failures = dict(promotion.failures)
        except PandastackError as error:
            errors.append(f"promote failed: {error.message}")
    if cleanup_losers:
        losers = [one for one in children if one.id != winner.id and one.id not in result.reaped]
        result.reaped.extend(await _reap(losers))
    return result


async def _run(child: AsyncSandbox, candidate: Candidate, capture_files: Union[bool, str]) -> BranchOutcome:
    outcome = BranchOutcome(label=candidate.label, sandbox_id=child.id)
    started = time.monotonic()
    try:
        if capture_files:
            await child.exec(_exploring.mark_command(), timeout_seconds=30)
        if candidate.fn is not None:
            outcome.value = await call_function(candidate.fn, child)
            outcome.ok = True
        elif candidate.cmd is not None:
            done = await child.exec(candidate.command(), timeout_seconds=candidate.timeout_s)
            outcome.exit_code, outcome.ok = done.exit_code, done.ok
            outcome.stdout_tail, outcome.stderr_tail = _exploring.tail(done.stdout), _exploring.tail(done.stderr)
        else:
            outcome.error = "the candidate has neither a command nor a function"
    except Exception as error:  # What goes wrong in a branch stays there.
        outcome.error = str(error) or repr(error)
        outcome.timed_out = isinstance(error, (SandboxTimeout, APITimeoutError))
        if isinstance(error, SandboxTimeout):
            outcome.stdout_tail, outcome.stderr_tail = _exploring.tail(error.stdout), _exploring.tail(error.stderr)
    outcome.duration_ms = int((time.monotonic() - started) * 1000)
    if capture_files and outcome.ok:
        try:
            listed = await child.exec(_exploring.changed_command(capture_files), timeout_seconds=30)
            outcome.files_changed = [line for line in listed.stdout.splitlines() if line.strip()]
        except PandastackError as error:
            outcome.error = f"what changed is unknown: {error.message}"
    return outcome


async def _reap(children: Sequence[AsyncSandbox]) -> list[str]:
    """Deletes what is left; gives the ids of what was."""
    gone: list[str] = []
    for child in children:
        try:
            await child.delete()
            gone.append(child.id)
        except PandastackError:
            pass  # It is gone already, or its time to live takes it.
    return gone

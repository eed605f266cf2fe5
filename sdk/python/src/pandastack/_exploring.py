"""What ``explore()`` is told, and what it found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from .exceptions import ExploreError

#: The most children one fork may have.
MAX_BRANCHES = 16
#: Branches that run at the same time.
AT_ONCE = 4
_TAIL_BYTES = 4096
_MAX_FILES = 200
_MARKER = "/tmp/.pandastack-explore-marker"
_ROOTS = "/app /work /root /home"


@dataclass
class Candidate:
    """One way to try: a command for the shell, or a function that is given the branch's sandbox.

    Candidate.shell("greedy", "python solve.py --greedy", env={"SEED": "1"})
    Candidate.call("patch", lambda sandbox: sandbox.files.write("/app/x.py", code))
    """

    label: str
    cmd: Optional[str] = None
    fn: Optional[Callable[[Any], Any]] = None
    timeout_s: float = 60.0
    env: Optional[Mapping[str, str]] = None
    #: A score that is known beforehand; else ``score_fn`` gives one.
    score: Optional[float] = None

    @staticmethod
    def shell(label: str, cmd: str, **options: Any) -> Candidate:
        """A command."""
        return Candidate(label=label, cmd=cmd, **options)

    @staticmethod
    def call(label: str, fn: Callable[[Any], Any], **options: Any) -> Candidate:
        """A function."""
        return Candidate(label=label, fn=fn, **options)

    def command(self) -> str:
        """What its shell runs."""
        words = [f"{name}={shlex.quote(str(value))}" for name, value in (self.env or {}).items()]
        assignments = f"export {' '.join(words)}; " if words else ""
        return f"{assignments}{self.cmd}"


@dataclass
class BranchOutcome:
    """What became of one candidate."""

    label: str
    sandbox_id: str
    ok: bool = False
    score: float = 0.0
    exit_code: Optional[int] = None
    stdout_tail: str = ""
    stderr_tail: str = ""
    files_changed: list[str] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    duration_ms: int = 0
    #: What a candidate's function returned.
    value: Any = None
    error: Optional[str] = None
    timed_out: bool = False


#: ``"max"``, ``"min"``, or a function that picks one of the outcomes.
Select = Union[str, Callable[[list[BranchOutcome]], BranchOutcome]]


def candidates_of(given: Sequence[Union[Candidate, str]]) -> list[Candidate]:
    """Candidates; a string is a command labelled with itself."""
    candidates = [one if isinstance(one, Candidate) else Candidate.shell(one, one) for one in given]
    if not candidates:
        raise ExploreError("explore: there are no candidates")
    if len(candidates) > MAX_BRANCHES:
        raise ExploreError(f"explore: {len(candidates)} candidates are more than {MAX_BRANCHES}; do it in rounds")
    return candidates


def tail(text: str) -> str:
    """The end of an output."""
    return text.encode("utf-8", "replace")[-_TAIL_BYTES:].decode("utf-8", "replace")


def mark_command() -> str:
    """What is run in a branch before its candidate."""
    return f"touch {_MARKER}"


def changed_command(roots: Union[bool, str]) -> str:
    """What lists the files that a candidate changed."""
    where = shlex.quote(roots) if isinstance(roots, str) else _ROOTS
    return f"find {where} -type f -newer {_MARKER} 2>/dev/null | head -n {_MAX_FILES}"


def pick(viable: list[BranchOutcome], select: Select) -> BranchOutcome:
    """The best one: by score, then the quicker, then by label."""
    if callable(select):
        return select(viable)
    return ranked(viable, select)[0]


def ranked(outcomes: list[BranchOutcome], select: Select, require_success: bool = False) -> list[BranchOutcome]:
    """From best to worst. Where success is required, those that failed come last, whatever their score is."""
    sign = 1.0 if select == "min" else -1.0
    return sorted(
        outcomes,
        key=lambda one: (require_success and not one.ok, sign * one.score, one.duration_ms, one.label),
    )


def table(outcomes: list[BranchOutcome], winner: Optional[BranchOutcome]) -> str:
    """Outcomes as a table for people."""
    rows = ["  label                score  ok   exit     ms  files"]
    for one in outcomes:
        mark = "*" if one is winner else " "
        code = "-" if one.exit_code is None else one.exit_code
        rows.append(
            f"{mark} {one.label[:18]:<18}  {one.score:>5.2f}  {'yes' if one.ok else 'no':<3}  {code:>4}  "
            f"{one.duration_ms:>5}  {len(one.files_changed):>5}"
        )
    return "\n".join(rows)

"""How branches of an experiment are compared."""

from __future__ import annotations

from pandastack._exploring import BranchOutcome, pick, ranked


def _branches() -> list[BranchOutcome]:
    return [
        BranchOutcome("slow", "1", ok=True, score=2.0, duration_ms=9),
        BranchOutcome("failed", "2", ok=False, score=0.0, error="it raised"),
        BranchOutcome("quick", "3", ok=True, score=2.0, duration_ms=1),
        BranchOutcome("short", "4", ok=True, score=1.0),
    ]


def _labels(outcomes: list[BranchOutcome]) -> list[str]:
    return [one.label for one in outcomes]


def test_the_best_come_first() -> None:
    assert _labels(ranked(_branches(), "max")) == ["quick", "slow", "short", "failed"]
    assert _labels(ranked(_branches(), "min")) == ["failed", "short", "quick", "slow"]


def test_a_branch_that_failed_is_no_good_one_for_its_low_score() -> None:
    assert _labels(ranked(_branches(), "min", require_success=True)) == ["short", "quick", "slow", "failed"]
    assert pick([one for one in _branches() if one.ok], "min").label == "short"

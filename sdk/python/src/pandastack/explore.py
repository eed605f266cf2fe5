"""Best of N over forks: :meth:`Sandbox.explore` as a function, and its types."""

from __future__ import annotations

from ._exploring import MAX_BRANCHES, BranchOutcome, Candidate
from ._sync.exploring import ExploreResult, explore
from .exceptions import ExploreError

__all__ = ["MAX_BRANCHES", "BranchOutcome", "Candidate", "ExploreError", "ExploreResult", "explore"]

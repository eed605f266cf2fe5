"""What the server warns of, said where the program that asked can see it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable


def warn_of(texts: Iterable[str]) -> None:
    """Issues warnings that point at the line which called this package."""
    level = 1
    frame = sys._getframe(0)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == __name__.partition(".")[0]:
        level += 1
        frame = frame.f_back
    for text in texts:
        warnings.warn(text, UserWarning, stacklevel=level)

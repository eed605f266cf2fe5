"""What a person sees while a template is prepared: one line on a terminal, rewritten; elsewhere nothing."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

from .models import Progress


class ProgressLine:
    """The line of one creation. It writes nothing unless standard error is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = False

    def show(self, progress: Progress, seconds: float) -> None:
        """Writes the line anew.

        :param seconds: how long this creation has waited.
        """
        out = _terminal()
        if out is None:
            return
        line = f"preparing {self._what}: {progress.step or 'waiting'}"
        time = f" ({seconds:.0f} s)"
        # A line that is wrapped could not be rewritten.
        room = max(shutil.get_terminal_size().columns - 1, 20) - len(time)
        _write(out, f"\r\x1b[K{line if len(line) <= room else line[: room - 1] + '…'}{time}")
        self._shown = True

    def clear(self) -> None:
        """Removes the line, if there is one."""
        out = _terminal() if self._shown else None
        self._shown = False
        if out is not None:
            _write(out, "\r\x1b[K")


def _terminal() -> TextIO | None:
    out = sys.stderr
    try:
        return out if out is not None and out.isatty() and os.environ.get("TERM") != "dumb" else None
    except ValueError:  # It was closed.
        return None


def _write(out: TextIO, text: str) -> None:
    try:
        out.write(text)
        out.flush()
    except (OSError, ValueError):
        pass  # The line is a courtesy; a terminal that is gone stops no creation.

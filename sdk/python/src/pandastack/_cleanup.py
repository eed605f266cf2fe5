"""What becomes of a failure to clean up at the end of a ``with`` block that failed itself."""

from __future__ import annotations

import logging

_log = logging.getLogger("pandastack")


def set_aside(block: BaseException, what: str, failure: Exception) -> None:
    """Notes on the error of the block, which goes on, what was not cleaned up and why; and logs it.

    :param what: what was not done, as the beginning of a sentence.
    """
    note = f"{what}: {type(failure).__name__}: {failure}"
    _log.warning("%s", note)
    # Python 3.11 and newer show notes below the error.
    add_note = getattr(block, "add_note", None)
    if add_note is not None:
        add_note(note)

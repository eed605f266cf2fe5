"""Hints of the server with calls of this package: the server speaks of fields and requests, which its clients call otherwise.

With the async client the calls are awaited.
"""

from __future__ import annotations

from typing import Optional

_BACKGROUND = "raise timeout_seconds, or run it in the background: sandbox.processes.start(…)"
_COLD = "its files are kept; start it from its disk: sandbox.wake(cold=True)"

#: Whole hints, and what they are here.
_HINTS = {
    "raise the timeout, or run it in the background": _BACKGROUND,
    "raise the timeout, or run it as a process in the background": _BACKGROUND,
    "start it cold, from its disk": _COLD,
    "its files are kept; start it cold, from its disk": _COLD,
    "wake it first": "sandbox.wake()",
    "resume it first": "sandbox.resume()",
    "choose another name, or ask for the old one to be replaced: the new one takes its place when it is done": (
        "choose another name, or replace the old one with replace=True: the new one takes its place when it is done"
    ),
    "its owner opens it by adding it to the sandbox's ports": "its owner opens it: sandbox.add_port(port)",
    "send `Authorization: Bearer pds_…`": "pass api_key=, or set PANDASTACK_API_KEY",
    "the routes are described at /docs and /openapi.json": (
        "the server may be older than this package: compare pandastack.__version__ with client.version()"
    ),
}

#: Words within hints.
_WORDS = {
    'create it with network "all", or open the network of this one': (
        'create it with network="all", or open the network of this one: sandbox.patch(network="all")'
    ),
}


def hint_here(hint: Optional[str]) -> Optional[str]:
    """A hint in the words of this package."""
    if hint is None:
        return None
    here = _HINTS.get(hint, hint)
    for there, words in _WORDS.items():
        here = here.replace(there, words)
    return here

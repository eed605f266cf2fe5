"""``python -m pandastack``: the worker for managed agents. The command line is the server's own program, ``pandastack``."""

from __future__ import annotations

import sys
from typing import Optional, Sequence

_USAGE = """\
usage: python -m pandastack cma [OPTIONS]

Runs a worker for Claude Managed Agents; see python -m pandastack cma --help.
Sandboxes, templates and the like are commands of the program `pandastack`, which comes with the server.
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs what is named. 0: done, 2: there is no such command."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or [""]
    if name == "cma":
        from .cma.__main__ import main as work

        return work(rest, "python -m pandastack cma")
    if name == "--version":
        from ._version import __version__

        print(f"pandastack {__version__}")
        return 0
    asked = name in ("-h", "--help")
    print(_USAGE, end="", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    raise SystemExit(main())

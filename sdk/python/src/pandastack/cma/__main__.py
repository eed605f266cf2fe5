"""``python -m pandastack.cma``, ``python -m pandastack cma`` and ``pandastack-cma``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from .._version import __version__
from ._config import NETWORKS, ON_IDLE, CmaConfig
from ._work import KeyRejected
from ._worker import Worker

_EPILOG = """\
environment variables:
  ANTHROPIC_ENVIRONMENT_ID, ANTHROPIC_ENVIRONMENT_KEY, ANTHROPIC_BASE_URL, PANDASTACK_API, PANDASTACK_API_KEY,
  CMA_TEMPLATE, CMA_ON_IDLE, CMA_OUTPUTS_DIR, CMA_SANDBOX_TTL_SECONDS, CMA_MAX_SESSION_SECONDS, CMA_WORKER_ID,
  CMA_NETWORK, CMA_MAX_SESSIONS, CMA_STOP_SECONDS, CMA_MAX_IDLE_SECONDS
"""


def parser(program: str) -> argparse.ArgumentParser:
    """The options; they come before the environment's variables."""
    made = argparse.ArgumentParser(
        prog=program,
        description="Works for a self_hosted environment of Claude Managed Agents: each session in a sandbox of its own.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"pandastack {__version__}")
    # Taken as earlier versions took it: an environment has all its agents' sessions.
    made.add_argument("--agent-id", help=argparse.SUPPRESS)
    made.add_argument("--environment-id", metavar="ID", help="the environment, env_…")
    made.add_argument("--environment-key", metavar="KEY", help="its key; a variable is better, others see arguments")
    made.add_argument("--token", dest="pandastack_token", metavar="KEY", help="key of the PandaStack server; the same")
    made.add_argument("--api", dest="pandastack_api", metavar="URL", help="the PandaStack server")
    made.add_argument("--anthropic-api", metavar="URL", help="Anthropic's API [default: https://api.anthropic.com]")
    made.add_argument("--template", metavar="NAME", help="template of sandboxes [default: claude-agent]")
    made.add_argument("--on-idle", choices=ON_IDLE, help="what becomes of sandboxes between turns [default: hibernate]")
    made.add_argument("--network", choices=NETWORKS, help="what the agent's commands reach [default: none]")
    made.add_argument("--outputs-dir", type=Path, metavar="DIR", help="where outputs are put [default: outputs]")
    made.add_argument("--worker-id", metavar="NAME", help="the worker's name at Anthropic [default: pandastack-HOSTNAME]")
    made.add_argument("--max-sessions", type=int, metavar="N", help="sessions at once [default: 8]")
    made.add_argument(
        "--ttl-seconds", dest="sandbox_ttl_seconds", type=int, metavar="S", help="idle seconds of sandboxes [default: 3600]"
    )
    made.add_argument("--max-session-seconds", type=int, metavar="S", help="longest turn [default: 3600]")
    made.add_argument("--stop-seconds", type=float, metavar="S", help="time for turns when it is to stop [default: 30]")
    made.add_argument("--max-idle-seconds", type=float, metavar="S", help="wait after a turn for the next [default: 60]")
    return made


def main(arguments: Optional[Sequence[str]] = None, program: str = "pandastack-cma") -> int:
    """Runs a worker until it is told to stop. 0: stopped, 1: the environment's key is not taken, 2: something is missing."""
    given = vars(parser(program).parse_args(arguments))
    given.pop("agent_id")
    try:
        config = CmaConfig.from_env(**given)
        config.check()
    except ValueError as error:
        print(f"error: {error}\nhint: {program} --help lists options and variables", file=sys.stderr)
        return 2
    try:
        Worker(config).run()
    except KeyRejected:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(program="python -m pandastack.cma"))

"""A worker for Claude Managed Agents, in sandboxes of a PandaStack server.

The model and the loop around it run at Anthropic; with a ``self_hosted`` environment the agent's tools run where you say. The
worker takes sessions from the environment's queue, and gives each a sandbox of its own, in which the runner of the template
``claude-agent`` works. Between turns the sandbox sleeps.

    python -m pandastack.cma          # ANTHROPIC_ENVIRONMENT_ID, ANTHROPIC_ENVIRONMENT_KEY, PANDASTACK_API, PANDASTACK_API_KEY

    from pandastack.cma import CmaConfig, Worker

    Worker(CmaConfig.from_env()).run()

Keys stay with the worker: the runner's requests leave the sandbox through the worker, which adds the key to those that the
runner needs and refuses the others. The sandbox needs no network for that.
"""

from __future__ import annotations

from ._config import CmaConfig
from ._work import ANTHROPIC_BETA, ANTHROPIC_VERSION, KeyRejected
from ._worker import Worker

__all__ = ["ANTHROPIC_BETA", "ANTHROPIC_VERSION", "CmaConfig", "KeyRejected", "Worker"]

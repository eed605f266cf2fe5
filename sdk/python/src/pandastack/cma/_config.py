"""What a worker is told: arguments, then environment, then default."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Optional

from .. import _config

#: What becomes of a session's sandbox between turns.
ON_IDLE = ("hibernate", "running", "delete")
#: What the agent's commands reach.
NETWORKS = ("none", "all")


def _worker_id() -> str:
    return f"pandastack-{socket.gethostname()}"


@dataclass
class CmaConfig:
    """How a :class:`Worker` works. The first three have to be there."""

    #: The ``self_hosted`` environment, ``env_…``.
    environment_id: str
    #: Its key. It never leaves the worker.
    environment_key: str = field(repr=False)
    #: The key of the PandaStack server.
    pandastack_token: str = field(repr=False)
    pandastack_api: str = _config.DEFAULT_BASE_URL
    anthropic_api: str = "https://api.anthropic.com"

    template: str = "claude-agent"
    #: ``hibernate``, ``running`` or ``delete``.
    on_idle: str = "hibernate"
    #: Files of ``/mnt/session/outputs`` are put below it, in a directory for each session.
    outputs_dir: Path = field(default_factory=lambda: Path("outputs"))
    #: Idle seconds after which a sandbox that does not sleep is deleted. A server that allows less than that decides itself.
    sandbox_ttl_seconds: int = 3600
    #: A turn that takes longer is ended.
    max_session_seconds: int = 3600
    worker_id: str = field(default_factory=_worker_id)
    #: Seconds until an answer of the PandaStack server is given up.
    client_timeout: float = 60.0
    #: What the agent's commands reach while a turn lasts: ``none``, or ``all`` that the server's uplink reaches.
    network: str = "none"
    #: Sessions that are worked on at once; others wait in the queue.
    max_sessions: int = 8
    #: Seconds that turns have to come to their end when the worker is told to stop; then they are handed back.
    stop_seconds: float = 30.0
    #: Seconds that the runner waits for more after a turn has ended; 60 when absent.
    max_idle_seconds: Optional[float] = None
    #: Most bytes of outputs that are collected after one turn.
    outputs_bytes_max: int = 1 << 30

    @classmethod
    def from_env(cls, **overrides: object) -> CmaConfig:
        """Reads the environment; arguments that are not ``None`` come before it.

        ``ANTHROPIC_ENVIRONMENT_ID``, ``ANTHROPIC_ENVIRONMENT_KEY``, ``ANTHROPIC_BASE_URL``, ``CMA_TEMPLATE``, ``CMA_ON_IDLE``,
        ``CMA_OUTPUTS_DIR``, ``CMA_SANDBOX_TTL_SECONDS``, ``CMA_MAX_SESSION_SECONDS``, ``CMA_WORKER_ID``, ``CMA_NETWORK``,
        ``CMA_MAX_SESSIONS``, ``CMA_STOP_SECONDS``, ``CMA_MAX_IDLE_SECONDS``. The server and its key are found as by
        :class:`pandastack.PandaStack`.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        token, api = given.get("pandastack_token"), given.get("pandastack_api")
        server = _config.resolve(None if token is None else str(token), None if api is None else str(api), None, None)
        values: dict[str, Any] = {
            "environment_id": os.environ.get("ANTHROPIC_ENVIRONMENT_ID", ""),
            "environment_key": os.environ.get("ANTHROPIC_ENVIRONMENT_KEY", ""),
            "pandastack_token": server.api_key or "",
            "pandastack_api": server.base_url,
        }
        for name, variable, kind in _VARIABLES:
            text = os.environ.get(variable, "").strip()
            if text:
                values[name] = _parsed(variable, text, kind)
        values.update(given)
        return cls(**values)

    def missing_required(self) -> List[str]:
        """The variables whose values are missing."""
        needed = {
            "ANTHROPIC_ENVIRONMENT_ID": self.environment_id,
            "ANTHROPIC_ENVIRONMENT_KEY": self.environment_key,
            "PANDASTACK_API_KEY": self.pandastack_token,
        }
        return [name for name, value in needed.items() if not value]

    def check(self) -> None:
        """Raises :class:`ValueError` when no worker can work like that."""
        missing = self.missing_required()
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")
        for name, value, known in (("on_idle", self.on_idle, ON_IDLE), ("network", self.network, NETWORKS)):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; it can be {', '.join(known)}")
        for name in ("sandbox_ttl_seconds", "max_session_seconds", "max_sessions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more")


_VARIABLES = (
    ("anthropic_api", "ANTHROPIC_BASE_URL", str),
    ("template", "CMA_TEMPLATE", str),
    ("on_idle", "CMA_ON_IDLE", str),
    ("outputs_dir", "CMA_OUTPUTS_DIR", Path),
    ("sandbox_ttl_seconds", "CMA_SANDBOX_TTL_SECONDS", int),
    ("max_session_seconds", "CMA_MAX_SESSION_SECONDS", int),
    ("worker_id", "CMA_WORKER_ID", str),
    ("network", "CMA_NETWORK", str),
    ("max_sessions", "CMA_MAX_SESSIONS", int),
    ("stop_seconds", "CMA_STOP_SECONDS", float),
    ("max_idle_seconds", "CMA_MAX_IDLE_SECONDS", float),
)


def _parsed(variable: str, text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{variable} is {text!r}, which is not a number") from None

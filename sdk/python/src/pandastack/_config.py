"""Where the server is and which key to use: argument, then environment, then configuration file, then default."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional
from urllib.parse import quote, urlsplit

from ._json import as_object
from ._retry import CREATE_BUDGET, TEMPLATE_STALL, WARM_UP_BUDGET

DEFAULT_BASE_URL = "https://api.pandastack.ai"

_log = logging.getLogger("pandastack")


@dataclass(frozen=True)
class Config:
    """What a client was told, or found out."""

    api_key: Optional[str]
    base_url: str
    preview_host: str
    create_budget: float
    warm_up_budget: float
    create_wait_most: Optional[float] = None
    template_stall: float = TEMPLATE_STALL

    def url(self, path: str) -> str:
        """The address of a path under ``/v1``."""
        base = self.base_url if self.base_url.endswith("/v1") else f"{self.base_url}/v1"
        return f"{base}{path}"

    def root_url(self, path: str) -> str:
        """The address of a path that has no version."""
        base = self.base_url[: -len("/v1")] if self.base_url.endswith("/v1") else self.base_url
        return f"{base}{path}"

    def socket_url(self, path: str) -> str:
        """The address of a WebSocket under ``/v1``."""
        scheme, rest = self.url(path).split("://", 1)
        return f"{'wss' if scheme == 'https' else 'ws'}://{rest}"


def resolve(
    api_key: Optional[str],
    base_url: Optional[str],
    preview_host: Optional[str],
    max_create_retry_seconds: Optional[float],
    *,
    max_create_wait_seconds: Optional[float] = None,
    template_stall_seconds: Optional[float] = None,
) -> Config:
    """Fills in what the arguments leave open."""
    env = os.environ.get
    file = _read_file()
    base = (
        base_url
        if base_url is not None
        else env("PANDASTACK_API") or env("PANDASTACK_API_URL") or file.get("api_url") or DEFAULT_BASE_URL
    )
    key = api_key if api_key is not None else env("PANDASTACK_API_KEY") or env("PANDASTACK_TOKEN")
    # A key that was kept for one server is not shown to another.
    if not key and api_key is None and _same_server(base, file.get("api_url", base)):
        key = file.get("token") or file.get("api_key")
    base = base.rstrip("/")
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an address of a server: {base!r}; expected something like {DEFAULT_BASE_URL}")
    host = (preview_host or env("PANDASTACK_PREVIEW_HOST") or "").strip().lstrip(".")
    if not host and _is_here(parts.hostname):
        # Names under localhost lead to this host, and every server knows them.
        host = f"localhost:{parts.port}" if parts.port else "localhost"
    if not host:
        host = parts.hostname.removeprefix("api.")
    stall = seconds("template_stall_seconds", template_stall_seconds)
    return Config(
        api_key=key or None,
        base_url=base,
        preview_host=host,
        create_budget=_create_budget(max_create_retry_seconds),
        warm_up_budget=_seconds("PANDASTACK_EXEC_READY_TIMEOUT", WARM_UP_BUDGET),
        create_wait_most=seconds("max_create_wait_seconds", max_create_wait_seconds),
        template_stall=TEMPLATE_STALL if stall is None else stall,
    )


def seconds(name: str, value: Optional[float]) -> Optional[float]:
    """An argument in seconds, if it was given; refused when it is not a number of them."""
    if value is None:
        return None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of seconds, 0 or more")
    return float(value)


def one_of(name: str, value: Optional[str], other_name: str, other: Optional[str]) -> Optional[str]:
    """An argument that has two names; refused when both are given and differ."""
    if value is not None and other is not None and value != other:
        raise ValueError(f"{name} and {other_name} are two names of one argument: give one of them")
    return other if value is None else value


def preview_scheme(base_url: str, preview_host: str) -> str:
    """How a preview by name is reached: on this host as the server itself is, elsewhere with TLS."""
    name = preview_host.partition(":")[0]
    return urlsplit(base_url).scheme if _is_here(name) else "https"


def segment(value: object) -> str:
    """An id or name as one segment of a path: whatever is in it, it stays one."""
    text = quote(str(value), safe="")
    if text in ("", ".", ".."):
        raise ValueError(f"not an id or name: {str(value)!r}")
    return text


def _create_budget(explicit: Optional[float]) -> float:
    given = seconds("max_create_retry_seconds", explicit)
    return _seconds("PANDASTACK_MAX_CREATE_RETRY_SECONDS", CREATE_BUDGET) if given is None else given


def _is_here(name: str) -> bool:
    return name in ("127.0.0.1", "::1", "localhost") or name.endswith(".localhost")


def _same_server(one: str, other: str) -> bool:
    return one.rstrip("/").removesuffix("/v1") == other.rstrip("/").removesuffix("/v1")


def _seconds(name: str, default: float) -> float:
    """Seconds from the environment. What is not a number is logged and ignored, so that it breaks no program."""
    raw = os.environ.get(name, "").strip()
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0:
        return value
    _log.warning("%s=%r is not a number of seconds; using %g", name, raw, default)
    return default


def _read_file() -> dict[str, str]:
    try:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        path = Path(home) / "pandastack" / "config.json"
        data = as_object(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RuntimeError):
        return {}
    return {key: value for key, value in data.items() if isinstance(value, str)}

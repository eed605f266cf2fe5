"""Which requests may leave a sandbox with the worker's key on them: those that the runner of one item needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import urlsplit

from .._json import as_list, as_object

#: Events that a runner sends. Others, such as messages of the user and consents to the agent's own calls, are not its own.
RESULTS = frozenset({"user.tool_result", "user.custom_tool_result"})
_PATH = re.compile(r"(/[A-Za-z0-9_~:-][A-Za-z0-9_.~:-]*)+")


@dataclass(frozen=True)
class Rules:
    """What one item of work allows."""

    environment_id: str
    work_id: str
    session_id: str

    def refusal(self, method: str, target: str, body: bytes) -> Optional[str]:
        """Why a request is refused; ``None`` when it may leave."""
        path = urlsplit(target).path
        if not target.startswith("/v1/") or not _PATH.fullmatch(path):
            return "not a path of the API"
        version, *rest = path[1:].split("/")
        kind, *names = rest or [""]
        if version != "v1":
            return "not a path of the API"
        if kind == "environments" and names[:3] == [self.environment_id, "work", self.work_id]:
            verb = names[3:]
            allowed = (method == "GET" and not verb) or (method == "POST" and verb in (["heartbeat"], ["stop"]))
            return None if allowed else "a runner only holds and ends its item"
        if kind == "sessions" and names[:1] == [self.session_id]:
            if method == "GET":
                return None
            if method == "POST" and names[1:] == ["events"]:
                return None if _only_results(body) else "a runner only sends results of tools"
            return "a runner does not change its session"
        if kind in ("skills", "files") and names:
            return None if method == "GET" else f"a runner only reads {kind}"
        if kind == "memory_stores" and names:
            allowed = method == "GET" or (names[1:2] == ["memories"] and method in ("POST", "PUT", "PATCH", "DELETE"))
            return None if allowed else "a runner only changes memories"
        return "not part of this session"

    def is_heartbeat(self, method: str, target: str) -> bool:
        """Whether an allowed request is a heartbeat."""
        return method == "POST" and urlsplit(target).path.endswith(f"/work/{self.work_id}/heartbeat")

    def is_stop(self, method: str, target: str) -> bool:
        """Whether an allowed request ends the item."""
        return method == "POST" and urlsplit(target).path.endswith(f"/work/{self.work_id}/stop")


def _only_results(body: bytes) -> bool:
    try:
        whole: Any = json.loads(body)
    except ValueError:
        return False
    events = as_list(as_object(whole).get("events"))
    return bool(events) and all(as_object(event).get("type") in RESULTS for event in events)

# Generated from ../_async/functions.py by scripts/generate_sync.py. Do not edit.
"""Functions, and schedules that run them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Dict, List, Optional

from .._bundles import bundle
from .._config import segment
from .._json import as_object
from .._local import LocalPath
from .._runtime_sync import in_thread
from .transport import Transport, items


class Functions:
    """Functions: ``client.functions``. Answers are dictionaries, as the server gives them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        runtime: str,
        file_path: LocalPath,
        *,
        entrypoint: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        template: str = "code-interpreter",
        public: bool = False,
    ) -> Dict[str, Any]:
        """Makes a function of a single file. ``runtime`` is ``python`` or ``nodejs``."""
        path = Path(file_path)
        code = base64.b64encode(in_thread(path.read_bytes)).decode("ascii")
        return self._create(name, runtime, entrypoint or path.name, env, template, public, {"code": code})

    def deploy(
        self,
        name: str,
        runtime: str,
        path: LocalPath,
        *,
        entrypoint: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        template: str = "code-interpreter",
        public: bool = False,
    ) -> Dict[str, Any]:
        """Sends a file or directory as the new version of the function of that name, which is made if there is none."""
        start = entrypoint or ("handler.js" if runtime == "nodejs" else "handler.py")
        function = next((one for one in self.list() if one.get("name") == name), None)
        if function is None:
            function = self._create(name, runtime, start, env or None, template, public, {})
        return self.deploy_bundle(str(function["id"]), in_thread(lambda: bundle(path, start)), start)

    def deploy_bundle(self, function_id: str, bundle: bytes, entrypoint: Optional[str] = None) -> Dict[str, Any]:
        """Sends an archive (``tar.gz``) as the new version of a function."""
        form = {} if entrypoint is None else {"entrypoint": entrypoint}
        files = {"bundle": ("code.tar.gz", bundle, "application/gzip")}
        return as_object(self._transport.send_form(f"/functions/{segment(function_id)}/deploy", form, files))

    def list(self) -> List[Dict[str, Any]]:
        """All functions."""
        return [as_object(one) for one in items(self._transport.request("GET", "/functions"))]

    def get(self, function_id: str) -> Dict[str, Any]:
        """The function of that id."""
        return as_object(self._transport.request("GET", f"/functions/{segment(function_id)}"))

    def update(
        self,
        function_id: str,
        *,
        name: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        public: Optional[bool] = None,
        entrypoint: Optional[str] = None,
    ) -> Dict[str, Any]:
        """Changes a function; ``env`` is replaced as a whole."""
        fields = {"name": name, "env": None if env is None else dict(env), "public": public, "entrypoint": entrypoint}
        body = {key: value for key, value in fields.items() if value is not None}
        return as_object(self._transport.request("PATCH", f"/functions/{segment(function_id)}", json=body))

    def delete(self, function_id: str) -> None:
        """Deletes a function."""
        self._transport.request("DELETE", f"/functions/{segment(function_id)}")

    def invoke(self, function_id: str, *, input: Any = None) -> Dict[str, Any]:
        """Runs a function and waits for it; gives the run."""
        body = {} if input is None else {"input": input}
        return as_object(
            self._transport.request(
                "POST",
                f"/functions/{segment(function_id)}/invoke",
                json=body,
                timeout=self._transport.machine_patience(),
            )
        )

    def trigger(self, function_id: str, *, input: Any = None) -> Dict[str, Any]:
        """The same as :meth:`invoke`."""
        return self.invoke(function_id, input=input)

    def runs(self, function_id: str) -> List[Dict[str, Any]]:
        """Its newest runs."""
        answer = self._transport.request("GET", f"/functions/{segment(function_id)}/runs")
        return [as_object(one) for one in items(answer)]

    def metrics(self, function_id: str, period_hours: int = 24) -> Dict[str, Any]:
        """How its runs of the last hours went."""
        path = f"/functions/{segment(function_id)}/metrics"
        return as_object(self._transport.request("GET", path, params={"period": period_hours}))

    def _create(
        self,
        name: str,
        runtime: str,
        entrypoint: str,
        env: Optional[Mapping[str, str]],
        template: str,
        public: bool,
        code: Mapping[str, str],
    ) -> Dict[str, Any]:
        body: Dict[str, Any] = {"name": name, "runtime": runtime, "entrypoint": entrypoint, **code}
        body.update({"template": template, "public": public})
        if env is not None:
            body["env"] = dict(env)
        return as_object(self._transport.request("POST", "/functions", json=body))


class Schedules:
    """Schedules of functions: ``client.schedules``. Answers are dictionaries, as the server gives them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, function_id: str, cron: str, *, paused: bool = False) -> Dict[str, Any]:
        """Runs a function regularly. ``cron`` has five fields, in UTC."""
        body = {"name": name, "function_id": function_id, "cron": cron, "paused": paused}
        return as_object(self._transport.request("POST", "/schedules", json=body))

    def list(self) -> List[Dict[str, Any]]:
        """All schedules."""
        return [as_object(one) for one in items(self._transport.request("GET", "/schedules"))]

    def get(self, schedule_id: str) -> Dict[str, Any]:
        """The schedule of that id."""
        return as_object(self._transport.request("GET", f"/schedules/{segment(schedule_id)}"))

    def update(
        self, schedule_id: str, *, cron: Optional[str] = None, paused: Optional[bool] = None, name: Optional[str] = None
    ) -> Dict[str, Any]:
        """Changes a schedule."""
        fields = {"name": name, "cron": cron, "paused": paused}
        body = {key: value for key, value in fields.items() if value is not None}
        return as_object(self._transport.request("PATCH", f"/schedules/{segment(schedule_id)}", json=body))

    def delete(self, schedule_id: str) -> None:
        """Deletes a schedule."""
        self._transport.request("DELETE", f"/schedules/{segment(schedule_id)}")

    def trigger(self, schedule_id: str) -> Dict[str, Any]:
        """Runs its function now; gives the run."""
        path = f"/schedules/{segment(schedule_id)}/trigger"
        return as_object(self._transport.request("POST", path, json={}, timeout=self._transport.machine_patience()))

    def runs(self, schedule_id: str) -> List[Dict[str, Any]]:
        """Its newest runs."""
        answer = self._transport.request("GET", f"/schedules/{segment(schedule_id)}/runs")
        return [as_object(one) for one in items(answer)]

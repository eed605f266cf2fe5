# Generated from ../_async/apps.py by scripts/generate_sync.py. Do not edit.
"""Apps: services that are deployed from repositories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Dict, List, Optional

from .._config import segment
from .._json import as_object
from .transport import STREAM_TIMEOUT, Transport, items


class Apps:
    """Apps: ``client.apps``. Answers are dictionaries, as the server gives them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        git_url: str,
        *,
        git_branch: Optional[str] = None,
        framework: Optional[str] = None,
        install_command: Optional[str] = None,
        build_command: Optional[str] = None,
        start_command: Optional[str] = None,
        root_directory: Optional[str] = None,
        port: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        template: Optional[str] = None,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        **fields: Any,
    ) -> Dict[str, Any]:
        """Makes an app. It runs once it is deployed. Other fields are sent as they are."""
        body = {
            "name": name,
            "git_url": git_url,
            "git_branch": git_branch,
            "framework": framework,
            "install_command": install_command,
            "build_command": build_command,
            "start_command": start_command,
            "root_directory": root_directory,
            "port": port,
            "env": None if env is None else dict(env),
            "template": template,
            "cpu": cpu,
            "memory_mb": memory_mb,
            **fields,
        }
        return self._object("POST", "/apps", {key: value for key, value in body.items() if value is not None})

    def list(self) -> List[Dict[str, Any]]:
        """All apps."""
        return self._objects("/apps", "items")

    def get(self, app_id: str) -> Dict[str, Any]:
        """The app of that id."""
        return self._object("GET", f"/apps/{segment(app_id)}")

    def update(self, app_id: str, **fields: Any) -> Dict[str, Any]:
        """Changes an app; it takes effect with the next deployment."""
        body = {key: value for key, value in fields.items() if value is not None}
        return self._object("PATCH", f"/apps/{segment(app_id)}", body)

    def delete(self, app_id: str) -> None:
        """Deletes an app and what it runs in."""
        path = f"/apps/{segment(app_id)}"
        self._transport.request("DELETE", path, timeout=self._transport.machine_patience())

    def deploy(self, app_id: str, *, git_ref: Optional[str] = None) -> Dict[str, Any]:
        """Starts a deployment. Does not wait: see :meth:`deploy_logs`."""
        body = None if git_ref is None else {"git_ref": git_ref}
        return self._object("POST", f"/apps/{segment(app_id)}/deploys", body)

    def deployments(self, app_id: str) -> List[Dict[str, Any]]:
        """Its deployments, newest first."""
        return self._objects(f"/apps/{segment(app_id)}/deploys", "items")

    def deployment(self, app_id: str, deployment_id: str) -> Dict[str, Any]:
        """One of its deployments."""
        return self._object("GET", f"/apps/{segment(app_id)}/deploys/{segment(deployment_id)}")

    def rollback(self, app_id: str) -> Dict[str, Any]:
        """Starts a deployment of what ran before."""
        return self._object("POST", f"/apps/{segment(app_id)}/rollback")

    def deploy_logs(self, app_id: str, deployment_id: str) -> Iterator[str]:
        """What a deployment says, line by line, until it ends."""
        path = f"/apps/{segment(app_id)}/deploys/{segment(deployment_id)}/logs"
        for line in self._transport.lines(path, {}, STREAM_TIMEOUT):
            yield line

    # Variables.

    def list_env(self, app_id: str) -> List[Dict[str, Any]]:
        """Its variables. Values of secret ones are masked."""
        return self._objects(f"/apps/{segment(app_id)}/env", "env")

    def set_env(self, app_id: str, key: str, value: str, *, secret: bool = False, scope: str = "all") -> Dict[str, Any]:
        """Sets a variable. ``scope`` is ``all``, ``production`` or ``preview``."""
        body = {"value": value, "secret": secret, "scope": scope}
        return self._object("PUT", f"/apps/{segment(app_id)}/env/{segment(key)}", body)

    def unset_env(self, app_id: str, key: str) -> None:
        """Removes a variable."""
        self._transport.request("DELETE", f"/apps/{segment(app_id)}/env/{segment(key)}")

    def import_env(self, app_id: str, dotenv: str, *, secret: bool = False, scope: str = "all") -> Dict[str, Any]:
        """Sets variables from lines of the form ``KEY=value``."""
        body = {"dotenv": dotenv, "secret": secret, "scope": scope}
        return self._object("POST", f"/apps/{segment(app_id)}/env/import", body)

    # Domains.

    def add_domain(self, app_id: str, domain: str) -> Dict[str, Any]:
        """Serves it under a custom domain, once the ``records`` of the answer are in its DNS."""
        return self._object("POST", f"/apps/{segment(app_id)}/domains", {"domain": domain})

    def domains(self, app_id: str) -> List[Dict[str, Any]]:
        """Its domains."""
        return self._objects(f"/apps/{segment(app_id)}/domains", "domains")

    def get_domain(self, app_id: str, domain: str) -> Dict[str, Any]:
        """How far a domain is."""
        return self._object("GET", f"/apps/{segment(app_id)}/domains/{segment(domain)}")

    def remove_domain(self, app_id: str, domain: str) -> None:
        """Serves it under that domain no longer."""
        self._transport.request("DELETE", f"/apps/{segment(app_id)}/domains/{segment(domain)}")

    # Previews of pull requests.

    def previews(self) -> List[Dict[str, Any]]:
        """Apps that are previews of pull requests."""
        return [one for one in self.list() if one.get("is_preview")]

    def preview_repos(self) -> List[Dict[str, Any]]:
        """Repositories whose pull requests get previews."""
        return self._objects("/preview-repos", "repos")

    def enable_preview_repo(self, github_repo_id: int, *, repo_full_name: Optional[str] = None) -> Dict[str, Any]:
        """Pull requests of this repository get previews from now on."""
        body: Dict[str, Any] = {"github_repo_id": github_repo_id}
        if repo_full_name:
            body["repo_full_name"] = repo_full_name
        return self._object("POST", "/preview-repos", body)

    def disable_preview_repo(self, github_repo_id: int) -> None:
        """Pull requests of this repository get no previews any more."""
        self._transport.request("DELETE", f"/preview-repos/{segment(github_repo_id)}")

    def list_preview_env(self, github_repo_id: int) -> List[Dict[str, Any]]:
        """Variables of the previews of a repository."""
        return self._objects(f"/repos/{segment(github_repo_id)}/preview-env", "env")

    def set_preview_env(self, github_repo_id: int, key: str, value: str, *, secret: bool = False) -> Dict[str, Any]:
        """Sets one."""
        body = {"value": value, "secret": secret}
        return self._object("PUT", f"/repos/{segment(github_repo_id)}/preview-env/{segment(key)}", body)

    def unset_preview_env(self, github_repo_id: int, key: str) -> None:
        """Removes one."""
        self._transport.request("DELETE", f"/repos/{segment(github_repo_id)}/preview-env/{segment(key)}")

    def import_preview_env(self, github_repo_id: int, dotenv: str, *, secret: bool = False) -> Dict[str, Any]:
        """Sets several from lines of the form ``KEY=value``."""
        body = {"dotenv": dotenv, "secret": secret}
        return self._object("POST", f"/repos/{segment(github_repo_id)}/preview-env/import", body)

    def _object(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        return as_object(self._transport.request(method, path, json=body))

    def _objects(self, path: str, name: str) -> List[Dict[str, Any]]:
        return [as_object(one) for one in items(self._transport.request("GET", path), name)]

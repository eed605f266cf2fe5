"""Apps: services that are deployed from repositories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Dict, List, Optional

from .._config import segment
from .._json import as_object
from .transport import STREAM_TIMEOUT, AsyncTransport, items


class AsyncApps:
    """Apps: ``client.apps``. Answers are dictionaries, as the server gives them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
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
        return await self._object("POST", "/apps", {key: value for key, value in body.items() if value is not None})

    async def list(self) -> List[Dict[str, Any]]:
        """All apps."""
        return await self._objects("/apps", "items")

    async def get(self, app_id: str) -> Dict[str, Any]:
        """The app of that id."""
        return await self._object("GET", f"/apps/{segment(app_id)}")

    async def update(self, app_id: str, **fields: Any) -> Dict[str, Any]:
        """Changes an app; it takes effect with the next deployment."""
        body = {key: value for key, value in fields.items() if value is not None}
        return await self._object("PATCH", f"/apps/{segment(app_id)}", body)

    async def delete(self, app_id: str) -> None:
        """Deletes an app and what it runs in."""
        path = f"/apps/{segment(app_id)}"
        await self._transport.request("DELETE", path, timeout=self._transport.machine_patience())

    async def deploy(self, app_id: str, *, git_ref: Optional[str] = None) -> Dict[str, Any]:
        """Starts a deployment. Does not wait: see :meth:`deploy_logs`."""
        body = None if git_ref is None else {"git_ref": git_ref}
        return await self._object("POST", f"/apps/{segment(app_id)}/deploys", body)

    async def deployments(self, app_id: str) -> List[Dict[str, Any]]:
        """Its deployments, newest first."""
        return await self._objects(f"/apps/{segment(app_id)}/deploys", "items")

    async def deployment(self, app_id: str, deployment_id: str) -> Dict[str, Any]:
        """One of its deployments."""
        return await self._object("GET", f"/apps/{segment(app_id)}/deploys/{segment(deployment_id)}")

    async def rollback(self, app_id: str) -> Dict[str, Any]:
        """Starts a deployment of what ran before."""
        return await self._object("POST", f"/apps/{segment(app_id)}/rollback")

    async def deploy_logs(self, app_id: str, deployment_id: str) -> AsyncIterator[str]:
        """What a deployment says, line by line, until it ends."""
        path = f"/apps/{segment(app_id)}/deploys/{segment(deployment_id)}/logs"
        async for line in self._transport.lines(path, {}, STREAM_TIMEOUT):
            yield line

    # Variables.

    async def list_env(self, app_id: str) -> List[Dict[str, Any]]:
        """Its variables. Values of secret ones are masked."""
        return await self._objects(f"/apps/{segment(app_id)}/env", "env")

    async def set_env(self, app_id: str, key: str, value: str, *, secret: bool = False, scope: str = "all") -> Dict[str, Any]:
        """Sets a variable. ``scope`` is ``all``, ``production`` or ``preview``."""
        body = {"value": value, "secret": secret, "scope": scope}
        return await self._object("PUT", f"/apps/{segment(app_id)}/env/{segment(key)}", body)

    async def unset_env(self, app_id: str, key: str) -> None:
        """Removes a variable."""
        await self._transport.request("DELETE", f"/apps/{segment(app_id)}/env/{segment(key)}")

    async def import_env(self, app_id: str, dotenv: str, *, secret: bool = False, scope: str = "all") -> Dict[str, Any]:
        """Sets variables from lines of the form ``KEY=value``."""
        body = {"dotenv": dotenv, "secret": secret, "scope": scope}
        return await self._object("POST", f"/apps/{segment(app_id)}/env/import", body)

    # Domains.

    async def add_domain(self, app_id: str, domain: str) -> Dict[str, Any]:
        """Serves it under a custom domain, once the ``records`` of the answer are in its DNS."""
        return await self._object("POST", f"/apps/{segment(app_id)}/domains", {"domain": domain})

    async def domains(self, app_id: str) -> List[Dict[str, Any]]:
        """Its domains."""
        return await self._objects(f"/apps/{segment(app_id)}/domains", "domains")

    async def get_domain(self, app_id: str, domain: str) -> Dict[str, Any]:
        """How far a domain is."""
        return await self._object("GET", f"/apps/{segment(app_id)}/domains/{segment(domain)}")

    async def remove_domain(self, app_id: str, domain: str) -> None:
        """Serves it under that domain no longer."""
        await self._transport.request("DELETE", f"/apps/{segment(app_id)}/domains/{segment(domain)}")

    # Previews of pull requests.

    async def previews(self) -> List[Dict[str, Any]]:
        """Apps that are previews of pull requests."""
        return [one for one in await self.list() if one.get("is_preview")]

    async def preview_repos(self) -> List[Dict[str, Any]]:
        """Repositories whose pull requests get previews."""
        return await self._objects("/preview-repos", "repos")

    async def enable_preview_repo(self, github_repo_id: int, *, repo_full_name: Optional[str] = None) -> Dict[str, Any]:
        """Pull requests of this repository get previews from now on."""
        body: Dict[str, Any] = {"github_repo_id": github_repo_id}
        if repo_full_name:
            body["repo_full_name"] = repo_full_name
        return await self._object("POST", "/preview-repos", body)

    async def disable_preview_repo(self, github_repo_id: int) -> None:
        """Pull requests of this repository get no previews any more."""
        await self._transport.request("DELETE", f"/preview-repos/{segment(github_repo_id)}")

    async def list_preview_env(self, github_repo_id: int) -> List[Dict[str, Any]]:
        """Variables of the previews of a repository."""
        return await self._objects(f"/repos/{segment(github_repo_id)}/preview-env", "env")

    async def set_preview_env(self, github_repo_id: int, key: str, value: str, *, secret: bool = False) -> Dict[str, Any]:
        """Sets one."""
        body = {"value": value, "secret": secret}
        return await self._object("PUT", f"/repos/{segment(github_repo_id)}/preview-env/{segment(key)}", body)

    async def unset_preview_env(self, github_repo_id: int, key: str) -> None:
        """Removes one."""
        await self._transport.request("DELETE", f"/repos/{segment(github_repo_id)}/preview-env/{segment(key)}")

    async def import_preview_env(self, github_repo_id: int, dotenv: str, *, secret: bool = False) -> Dict[str, Any]:
        """Sets several from lines of the form ``KEY=value``."""
        body = {"dotenv": dotenv, "secret": secret}
        return await self._object("POST", f"/repos/{segment(github_repo_id)}/preview-env/import", body)

    async def _object(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        return as_object(await self._transport.request(method, path, json=body))

    async def _objects(self, path: str, name: str) -> List[Dict[str, Any]]:
        return [as_object(one) for one in items(await self._transport.request("GET", path), name)]

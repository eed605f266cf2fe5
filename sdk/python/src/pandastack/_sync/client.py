# Generated from ../_async/client.py by scripts/generate_sync.py. Do not edit.
"""The client."""

from __future__ import annotations

from types import TracebackType
from typing import Callable, List, Optional

import httpx

from .._cleanup import set_aside
from .._config import one_of, resolve
from .._json import as_list, as_object
from .._retry import CreateRetryEvent
from ..models import AuditEntry, BootStats, Health, Me, Progress, Version
from .apps import Apps
from .builds import Templates
from .databases import Databases
from .functions import Functions, Schedules
from .resources import Sandboxes, Snapshots, Tokens, Volumes
from .transport import Transport


class PandaStack:
    """A client of a PandaStack server.

        with PandaStack() as client:
            with client.sandboxes.create(template="base") as sandbox:
                print(sandbox.exec("echo hello").stdout)

    :param api_key: the key; else ``PANDASTACK_API_KEY``, ``PANDASTACK_TOKEN``, or ``~/.config/pandastack/config.json``.
    :param base_url: where the server is; else ``PANDASTACK_API``, ``PANDASTACK_API_URL``, or that file.
    :param token: another name of ``api_key``, as ``api_url`` is of ``base_url``.
    :param timeout: seconds until an answer is given up. Commands and machines get what they need beyond that.
    :param max_create_retry_seconds: how long creating and forking ask again when there is no room; 60 when absent, 0 for never.
    :param on_create_retry: called with a :class:`CreateRetryEvent` before each time.
    :param max_create_wait_seconds: limit on all that creating and forking wait for, the preparation of a template included.
        Without it they wait for a template as long as the server makes progress with it.
    :param template_stall_seconds: how long a template may make no progress before that fails; 600 when absent.
    :param on_progress: called with a :class:`Progress` each time the server says how far a template is. Without it one line on
        standard error shows the progress, if that is a terminal.
    :param preview_host: the host name under which previews are; else ``PANDASTACK_PREVIEW_HOST``, or the server's; under
        ``localhost`` if that is on this host.
    :param http_client: an HTTP client of your own, with its proxies and certificates. You close it.
    """

    def __init__(
        self,
        api_key: Optional[str] = None,
        base_url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        api_url: Optional[str] = None,
        timeout: float = 60.0,
        max_create_retry_seconds: Optional[float] = None,
        on_create_retry: Optional[Callable[[CreateRetryEvent], object]] = None,
        max_create_wait_seconds: Optional[float] = None,
        template_stall_seconds: Optional[float] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
        preview_host: Optional[str] = None,
        http_client: Optional[httpx.Client] = None,
    ) -> None:
        config = resolve(
            one_of("api_key", api_key, "token", token),
            one_of("base_url", base_url, "api_url", api_url),
            preview_host,
            max_create_retry_seconds,
            max_create_wait_seconds=max_create_wait_seconds,
            template_stall_seconds=template_stall_seconds,
        )
        self._transport = Transport(
            config, timeout=timeout, on_create_retry=on_create_retry, on_progress=on_progress, http_client=http_client
        )
        #: Where previews by name are.
        self.preview_host = config.preview_host
        #: Sandboxes.
        self.sandboxes = Sandboxes(self, self._transport)
        #: The same.
        self.sandbox = self.sandboxes
        #: Snapshots.
        self.snapshots = Snapshots(self._transport)
        #: Templates.
        self.templates = Templates(self._transport)
        #: Volumes.
        self.volumes = Volumes(self._transport)
        #: API keys.
        self.tokens = Tokens(self._transport)
        #: Functions, on servers that have them.
        self.functions = Functions(self._transport)
        #: Schedules of functions, on servers that have them.
        self.schedules = Schedules(self._transport)
        #: Managed databases, on servers that have them.
        self.databases = Databases(self._transport)
        #: Apps, on servers that have them.
        self.apps = Apps(self._transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self.base_url!r})"

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._transport.config.base_url

    @property
    def api_url(self) -> str:
        """The same."""
        return self.base_url

    @property
    def api_key(self) -> Optional[str]:
        """The key, where one was found."""
        return self._transport.config.api_key

    @property
    def timeout(self) -> float:
        """Seconds until an answer is given up."""
        return self._transport.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._transport.timeout = seconds

    @property
    def max_create_retry_seconds(self) -> float:
        """How long creating and forking ask again when there is no room."""
        return self._transport.config.create_budget

    @property
    def on_create_retry(self) -> Optional[Callable[[CreateRetryEvent], object]]:
        """Called before each time."""
        return self._transport.on_create_retry

    @on_create_retry.setter
    def on_create_retry(self, callback: Optional[Callable[[CreateRetryEvent], object]]) -> None:
        self._transport.on_create_retry = callback

    def me(self) -> Me:
        """Who is calling."""
        return Me.from_dict(self._transport.request("GET", "/me"))

    def set_network_default(self, network: Optional[str]) -> Me:
        """What sandboxes of this workspace reach when ``network`` is not said: ``"all"``, ``"none"``, or ``None`` for the
        operator's default."""
        return Me.from_dict(self._transport.request("PATCH", "/me", json={"network_default": network}))

    def audit(self, *, since: Optional[str] = None, limit: Optional[int] = None) -> List[AuditEntry]:
        """Requests that changed something, newest first.

        :param since: from when on: RFC 3339, or seconds of Unix time.
        """
        answer = self._transport.request("GET", "/audit", params={"since": since, "limit": limit})
        return [AuditEntry.from_dict(one) for one in as_list(as_object(answer).get("entries"))]

    def boot_stats(self, limit: Optional[int] = None) -> BootStats:
        """How long recent creations took."""
        return BootStats.from_dict(self._transport.request("GET", "/stats/boot", params={"limit": limit}))

    def version(self) -> Version:
        """Which program answers."""
        return Version.from_dict(self._transport.request("GET", "/version"))

    def health(self) -> Health:
        """Whether the server can work."""
        return Health.from_dict(self._transport.request("GET", "/healthz", root=True))

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> PandaStack:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the client was not closed", failure)

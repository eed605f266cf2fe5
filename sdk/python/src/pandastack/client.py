"""The client under the name and with the arguments that programs written for earlier versions use."""

from __future__ import annotations

from typing import Callable, Optional

from ._config import DEFAULT_BASE_URL as DEFAULT_API_URL
from ._retry import CREATE_507_LEAST as CREATE_RETRY_507_MIN_DELAY_SECONDS
from ._retry import CREATE_BUDGET as DEFAULT_MAX_CREATE_RETRY_SECONDS
from ._retry import CREATE_CAP_FIRST as CREATE_RETRY_INITIAL_DELAY_SECONDS
from ._retry import CREATE_CAP_MOST as CREATE_RETRY_MAX_DELAY_SECONDS
from ._retry import CREATE_SHORTENED_LEAST as CREATE_RETRY_MIN_SHORTENED_DELAY_SECONDS
from ._retry import CreateRetryEvent
from ._runtime_sync import CancelEvent
from ._sync.client import PandaStack
from ._sync.resources import Sandboxes as SandboxAPI
from .models import Progress

__all__ = [
    "CREATE_RETRY_507_MIN_DELAY_SECONDS",
    "CREATE_RETRY_INITIAL_DELAY_SECONDS",
    "CREATE_RETRY_MAX_DELAY_SECONDS",
    "CREATE_RETRY_MIN_SHORTENED_DELAY_SECONDS",
    "DEFAULT_API_URL",
    "DEFAULT_MAX_CREATE_RETRY_SECONDS",
    "CancelEvent",
    "Client",
    "CreateRetryEvent",
    "SandboxAPI",
]


class Client(PandaStack):
    """:class:`PandaStack` with the order of arguments of earlier versions."""

    def __init__(
        self,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
        timeout: float = 60.0,
        api_base: Optional[str] = None,
        max_create_retry_seconds: Optional[float] = None,
        on_create_retry: Optional[Callable[[CreateRetryEvent], object]] = None,
        *,
        max_create_wait_seconds: Optional[float] = None,
        template_stall_seconds: Optional[float] = None,
        on_progress: Optional[Callable[[Progress], object]] = None,
    ) -> None:
        super().__init__(
            api_key,
            api_url if api_url is not None else api_base,
            timeout=timeout,
            max_create_retry_seconds=max_create_retry_seconds,
            on_create_retry=on_create_retry,
            max_create_wait_seconds=max_create_wait_seconds,
            template_stall_seconds=template_stall_seconds,
            on_progress=on_progress,
        )

    @property
    def api_base(self) -> str:
        """The same as ``api_url``."""
        return self.base_url

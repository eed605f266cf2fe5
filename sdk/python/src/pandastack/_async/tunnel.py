"""Local ports that lead into sandboxes."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Optional

from .._cleanup import set_aside
from .._runtime_async import Listener, Socket
from ..exceptions import PandastackError
from .transport import AsyncTransport

_log = logging.getLogger("pandastack")


class AsyncTunnel:
    """A port of this machine that leads to a port of a sandbox: see :meth:`AsyncSandbox.tunnel`."""

    def __init__(self, transport: AsyncTransport, path: str, port: int, host: str, local_port: int) -> None:
        self._transport = transport
        self._path = path
        self._wanted = local_port
        self._listener = Listener(self._connect, self._failed)
        self._local_port: Optional[int] = None
        #: The port in the sandbox.
        self.port = port
        #: The address that it listens on here.
        self.host = host
        #: Why the last connection that failed did so, such as that nothing listens in the sandbox.
        self.error: Optional[PandastackError] = None

    def __repr__(self) -> str:
        here = "closed" if self._local_port is None else f"{self.host}:{self._local_port}"
        return f"{type(self).__name__}({here} to {self.port})"

    @property
    def local_port(self) -> int:
        """The port here. It is known once the tunnel is open."""
        if self._local_port is None:
            raise RuntimeError("the tunnel is not open: use it in a with block, or call open() first")
        return self._local_port

    async def open(self) -> AsyncTunnel:
        """Begins to listen, unless it has begun."""
        if self._local_port is None:
            self._local_port = await self._listener.open(self.host, self._wanted)
        return self

    async def close(self) -> None:
        """Ends the connections, and listens no more."""
        self._local_port = None
        await self._listener.close()

    async def __aenter__(self) -> AsyncTunnel:
        return await self.open()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the tunnel was not closed", failure)

    async def _connect(self) -> Socket:
        return await self._transport.socket(self._path, {})

    def _failed(self, error: PandastackError) -> None:
        self.error = error
        _log.warning("a connection to port %d of the sandbox failed: %s", self.port, error.message)

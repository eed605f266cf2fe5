# Generated from ../_async/tunnel.py by scripts/generate_sync.py. Do not edit.
"""Local ports that lead into sandboxes."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Optional

from .._cleanup import set_aside
from .._runtime_sync import Listener, Socket
from ..exceptions import PandastackError
from .transport import Transport

_log = logging.getLogger("pandastack")


class Tunnel:
    """A port of this machine that leads to a port of a sandbox: see :meth:`Sandbox.tunnel`."""

    def __init__(self, transport: Transport, path: str, port: int, host: str, local_port: int) -> None:
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

    def open(self) -> Tunnel:
        """Begins to listen, unless it has begun."""
        if self._local_port is None:
            self._local_port = self._listener.open(self.host, self._wanted)
        return self

    def close(self) -> None:
        """Ends the connections, and listens no more."""
        self._local_port = None
        self._listener.close()

    def __enter__(self) -> Tunnel:
        return self.open()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            set_aside(error, "the tunnel was not closed", failure)

    def _connect(self) -> Socket:
        return self._transport.socket(self._path, {})

    def _failed(self, error: PandastackError) -> None:
        self.error = error
        _log.warning("a connection to port %d of the sandbox failed: %s", self.port, error.message)

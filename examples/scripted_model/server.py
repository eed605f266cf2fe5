"""A model that follows a script, behind the HTTP of Anthropic's Messages and OpenAI's Chat Completions. See README.md.

    python3 server.py SCRIPT.json                       # prints its address, serves until it is ended
    python3 server.py SCRIPT.json -- python3 agent.py   # runs a program that finds it by the usual variables
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import chat_api
import messages_api
from script import Refused, Script

#: What a request may have.
BODY_BYTES_MAX = 8 << 20


class ScriptedModel(ThreadingHTTPServer):
    """The server."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], script: Script) -> None:
        super().__init__(address, Handler)
        self.script = script
        #: Why requests were refused.
        self.refused: list[str] = []

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


class Handler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def do_POST(self) -> None:
        """A request for the model's next turn."""
        path = self.path.split("?")[0].rstrip("/")
        # Anthropic's own clients add /v1 to the address they are given, others do not.
        if path in ("/v1/messages", "/messages"):
            api: Any = messages_api
        elif path in ("/v1/chat/completions", "/chat/completions"):
            api = chat_api
        else:
            self._refuse(404, f"no such address: {self.path}", chat_api)
            return
        try:
            request = self._request()
            api.check_headers({name.lower(): value for name, value in self.headers.items()})
            turn = self.server.script.next(api.read(request))
        except Refused as refused:
            self._refuse(400, str(refused), api)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            self._refuse(400, f"the request is not well formed: {error!r}", api)
        else:
            if not request.get("stream"):
                self._answer(200, api.whole(turn, request["model"]))
            elif api is messages_api:
                self._stream(messages_api.stream(turn, request["model"]))
            else:
                with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
                self._stream(chat_api.stream(turn, request["model"], with_usage))

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing of requests that went well."""

    def _request(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= BODY_BYTES_MAX:
            # What follows cannot be told from another request.
            self.close_connection = True
            raise Refused(f"a body of {length} bytes")
        request = json.loads(self.rfile.read(length))
        if not isinstance(request, dict):
            raise Refused("the body is no object")
        return request

    def _refuse(self, status: int, why: str, api: Any) -> None:
        self.server.refused.append(why)
        print(f"scripted model: refused: {why}", file=sys.stderr, flush=True)
        self._answer(status, api.error(why))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _stream(self, events: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            encoded = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(encoded), encoded))
        self.wfile.write(b"0\r\n\r\n")


def run(server: ScriptedModel, command: list[str]) -> int:
    """Runs a program with the server; its exit code, or 1 if it did not do as the script says."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    environment = {
        **os.environ,
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "scripted",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "scripted",
    }
    code = subprocess.run(command, env=environment).returncode
    server.shutdown()
    left = len(server.script.turns) - len(server.script.used)
    if left and not server.refused:
        print(f"scripted model: {left} of {len(server.script.turns)} answers were not asked for", file=sys.stderr)
    return code or (1 if left or server.refused else 0)


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="A model that follows a script.")
    parser.add_argument("script", type=Path, help="what it says and calls: see README.md")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0, the default, for any free port")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:end])
    command = given[end + 1 :]
    with ScriptedModel((arguments.host, arguments.port), Script(arguments.script)) as server:
        if command:
            return run(server, command)
        print(server.url, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())

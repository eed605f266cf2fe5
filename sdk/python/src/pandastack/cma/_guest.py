"""The part that runs in the guest, given to its Python as a whole: starts the runner and passes on its requests.

The runner is told that the API is on the guest's own loopback. Its requests become lines of JSON on standard output, answers
come as lines on standard input. Nothing here knows a key. It uses nothing but the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Optional

#: Bytes in one line, before they are encoded.
PIECE = 24 * 1024
#: Bytes that may be on their way before the other side has said that it read them. The guest's agent holds four times as many.
WINDOW = 256 * 1024
#: Most bytes of a request, and of an answer that its reader does not take.
BODY_MAX = 64 * 1024 * 1024
#: Bytes of the runner's log that are told at its end.
TAIL = 4096
#: Seconds that a runner has after it was told to end.
END_TIMEOUT = 10.0

DROPPED = frozenset({"host", "connection", "authorization", "x-api-key", "content-length", "transfer-encoding", "expect"})


class Wire:
    """Lines to the worker."""

    def __init__(self) -> None:
        self.space = threading.Condition()
        self.sent = 0
        self.taken = 0
        self.last = 0
        self.exchanges: Dict[int, Exchange] = {}

    def send(self, frame: Dict[str, Any]) -> None:
        line = (json.dumps(frame) + "\n").encode()
        with self.space:
            self.space.wait_for(lambda: self.sent == self.taken or self.sent + len(line) - self.taken <= WINDOW)
            self.sent += len(line)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def note_taken(self, count: int) -> None:
        with self.space:
            self.taken = max(self.taken, count)
            self.space.notify_all()

    def begin(self) -> Exchange:
        with self.space:
            self.last += 1
            exchange = self.exchanges[self.last] = Exchange(self.last)
            return exchange

    def end(self, exchange: Exchange) -> None:
        with self.space:
            self.exchanges.pop(exchange.number, None)


class Exchange:
    """A request of the runner whose answer is not complete."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.frames: queue.Queue[Dict[str, Any]] = queue.Queue()
        self.held = 0

    def put(self, frame: Dict[str, Any]) -> None:
        self.held += len(frame.get("data", ""))
        self.frames.put({"failed": self.number, "why": "the answer is not read"} if self.held > BODY_MAX else frame)

    def get(self) -> Dict[str, Any]:
        frame = self.frames.get()
        self.held -= len(frame.get("data", ""))
        return frame


wire = Wire()


class Handler(BaseHTTPRequestHandler):
    """One connection of the runner, which has one request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the overridden one
        pass

    def respond(self) -> None:
        self.close_connection = True
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not length.isdigit() or int(length) > BODY_MAX:
            self.send_error(413)
            return
        exchange = wire.begin()
        number = exchange.number
        try:
            headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in DROPPED}
            wire.send({"request": number, "method": self.command, "path": self.path, "headers": headers})
            left = int(length)
            while left > 0:
                piece = self.rfile.read(min(left, PIECE))
                if not piece:
                    raise ConnectionError
                left -= len(piece)
                wire.send({"body": number, "data": base64.b64encode(piece).decode()})
            wire.send({"sent": number})
            self.pass_on(exchange)
        except OSError:
            wire.send({"gone": number})
        finally:
            wire.end(exchange)

    def pass_on(self, exchange: Exchange) -> None:
        frame = exchange.get()
        if "answer" not in frame:
            self.send_error(502, str(frame.get("why", "")))
            return
        self.send_response(int(frame["status"]))
        for name, value in frame["headers"].items():
            self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        while True:
            frame = exchange.get()
            if "data" not in frame:
                # Cut short, so that the runner does not take it for the whole answer.
                if "failed" in frame:
                    self.connection.close()
                return
            self.wfile.write(base64.b64decode(frame["data"]))
            self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond


class Server(ThreadingHTTPServer):
    """Its threads end with the program."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def listen(runner: subprocess.Popen[bytes]) -> None:
    """Reads what the worker says. Lines that were sent twice have the same number."""
    seen = 0
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if frame["line"] <= seen:
            continue
        seen = frame["line"]
        if "taken" in frame:
            wire.note_taken(frame["taken"])
        elif "end" in frame:
            end(runner)
        else:
            number = frame.get("answer") or frame.get("data_of") or frame.get("done") or frame.get("failed")
            exchange = wire.exchanges.get(number)
            if exchange is not None:
                exchange.put(frame)
    end(runner)


def end(runner: subprocess.Popen[bytes]) -> None:
    runner.terminate()
    killer = threading.Timer(END_TIMEOUT, runner.kill)
    killer.daemon = True
    killer.start()


def run(setup: Dict[str, Any]) -> int:
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = setup["log"]
    with open(path, "ab") as log:
        start = log.tell()
        env = {**os.environ, **setup["env"], "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        why: Optional[str] = None
        code = 127
        try:
            os.makedirs(setup["cwd"], exist_ok=True)
            runner = subprocess.Popen(
                setup["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=setup["cwd"]
            )
        except OSError as error:
            why = f"cannot start {setup['command'][0]}: {error.strerror}"
        else:
            threading.Thread(target=listen, args=(runner,), daemon=True).start()
            wire.send({"started": runner.pid})
            code = runner.wait()
            code = 128 - code if code < 0 else code
    if why is None:
        with open(path, "rb") as log:
            log.seek(max(start, os.path.getsize(path) - TAIL))
            why = log.read(TAIL).decode(errors="replace")
    wire.send({"exit": code, "log": why})
    return code


if __name__ == "__main__":
    ended = run(json.loads(sys.stdin.buffer.readline()))
    # Connections that are still open do not keep it.
    os._exit(ended & 0xFF)

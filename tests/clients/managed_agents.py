"""Workers for Claude Managed Agents against a PandaStack server, with a scripted server in the place of Anthropic's API.

    managed_agents.py [--serve PROGRAM DATA_DIR] WORKER…

    ours[=PYTHON]             the worker of the package that this interpreter has, or another
    published[=PYTHON]        the worker of the published package
    npm=PATH/TO/cli.js        the worker of the published npm package

PANDASTACK_API and PANDASTACK_API_KEY say where the server is. With --serve it is started here, in a network of its own, with a
world beyond its uplink where the scripted server is: published workers let the runner speak to the API itself, so guests have to
reach it. The runner in the guest is the template's own.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import itertools
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ENVIRONMENT, SESSION = "env_scripted", "session_scripted"
# Never written as a whole into anything that the guest is told to run: it would find itself.
KEY = "-".join(["sk", "ant", "oat01", os.urandom(16).hex()])
TOKEN = "-".join(["sess", os.urandom(16).hex()])
TIMEOUT = float(os.environ.get("MANAGED_AGENTS_TIMEOUT", "600"))
NOW = "2026-01-01T00:00:00Z"
STARTED = int(time.time()) - 60


def wait(what, condition, timeout=TIMEOUT):
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain until {what}")
        time.sleep(0.2)
    return found


class Item:
    def __init__(self, turn, secret):
        self.id = f"work_{turn}"
        self.secret = secret
        self.state = "queued"
        self.given_at = 0.0
        self.last = ""
        self.beats = 0
        self.over = False

    def json(self, with_secret=False):
        return {
            "id": self.id,
            "type": "work",
            "created_at": NOW,
            "data": {"type": "session", "id": SESSION},
            "environment_id": ENVIRONMENT,
            "metadata": {},
            "state": self.state,
            "secret": self.secret if with_secret else None,
        }


class Anthropic:
    """The session's side: what the agent says is scripted, and what comes back is kept."""

    def __init__(self, accepts):
        self.lock = threading.Condition()
        self.items = []
        self.events = []
        self.streams = []
        self.numbers = itertools.count(1)
        self.refused = []
        #: Whether a request with this authorization may be for a session's item.
        self.accepts = accepts

    def add(self, **event):
        event = {"id": f"event_{next(self.numbers)}", "processed_at": NOW, **event}
        with self.lock:
            self.events.append(event)
            for stream in self.streams:
                stream.put(event)
            self.lock.notify_all()
        return event["id"]

    def call(self, tool, item=None, **arguments):
        """Has the agent use a tool, and gives the text of its result."""
        number = self.add(type="agent.tool_use", name=tool, input=arguments, evaluated_permission="allow")
        found = []

        def answered():
            with self.lock:
                found[:] = [one for one in self.events if one.get("tool_use_id") == number]
            if not found and item is not None and item.state == "stopped":
                raise SystemExit(f"{item.id} was ended before {arguments} was answered")
            return found

        wait(f"{arguments} is answered", answered)
        text = "".join(block.get("text", "") for block in found[0]["content"])
        if found[0].get("is_error"):
            raise SystemExit(f"{arguments} failed: {text}")
        return text

    def begin(self, turn, secret=None):
        self.add(type="user.message", content=[{"type": "text", "text": f"turn {turn}"}])
        item = Item(turn, secret)
        with self.lock:
            self.items.append(item)
        return item

    def end(self, item):
        """The agent has nothing more to do."""
        self.add(type="session.status_idle", stop_reason={"type": "end_turn"})
        item.over = True
        wait(f"{item.id} is ended", lambda: item.state == "stopped")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Anthropic

    def log_message(self, format, *args):
        pass

    def answer(self, status, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message):
        self.api.refused.append(f"{self.command} {self.path}: {message}")
        self.answer(status, {"type": "error", "error": {"type": "refused", "message": message}})

    def respond(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        parts = path.removeprefix("/v1/").split("/")
        if token not in (KEY, TOKEN) or self.headers.get("anthropic-version") is None:
            return self.refuse(401, "not authorized")
        if parts[:3] == ["environments", ENVIRONMENT, "work"]:
            return self.work(parts[3:], query, token, body)
        if parts[:2] == ["sessions", SESSION]:
            if not self.api.accepts(self.api.items[-1], token):
                return self.refuse(403, "not with this token")
            return self.session(parts[2:], body)
        return self.refuse(404, "no such path")

    do_GET = do_POST = respond

    def work(self, parts, query, token, body):
        api = self.api
        if parts == ["poll"]:
            if token != KEY:
                return self.refuse(401, "only the environment's key polls")
            deadline = time.monotonic() + int(query.get("block_ms", "0")) / 1000
            while time.monotonic() < deadline:
                with api.lock:
                    for item in api.items:
                        if item.state == "queued" and time.monotonic() - item.given_at > 5:
                            item.given_at = time.monotonic()
                            return self.answer(200, item.json(with_secret=True))
                time.sleep(0.05)
            return self.answer(200, None)
        item = next((one for one in api.items if parts[:1] == [one.id]), None)
        if item is None:
            return self.refuse(404, "no such item")
        with api.lock:
            if parts[1:] == ["ack"]:
                if item.state != "queued":
                    return self.refuse(409, "taken")
                item.state = "starting"
                return self.answer(200, item.json())
            if parts[1:] == ["heartbeat"]:
                if query.get("expected_last_heartbeat", "") != (item.last or "NO_HEARTBEAT"):
                    return self.refuse(412, f"the last heartbeat is {item.last!r}")
                item.beats += 1
                item.last = f"2026-01-01T00:00:00.{item.beats:06}Z"
                # A runner that does not end by itself soon is told to.
                item.state = "stopping" if item.over else "active"
                beat = {"type": "work_heartbeat", "last_heartbeat": item.last, "lease_extended": True, "ttl_seconds": 30}
                return self.answer(200, {**beat, "state": item.state})
            if parts[1:] == ["stop"]:
                item.state = "stopped"
                return self.answer(200, item.json())
        return self.refuse(404, "no such verb")

    def session(self, parts, body):
        api = self.api
        if parts == [] and self.command == "GET":
            session = {"id": SESSION, "type": "session", "environment_id": ENVIRONMENT, "status": "running", "resources": []}
            agent = {"type": "agent", "id": "agent_1", "skills": [], "tools": [], "mcp_servers": []}
            dates = {"created_at": NOW, "updated_at": NOW, "metadata": {}, "vault_ids": [], "outcome_evaluations": []}
            return self.answer(200, {**session, **dates, "agent": agent})
        if parts == ["events"] and self.command == "GET":
            with api.lock:
                return self.answer(200, {"data": list(api.events), "next_page": None})
        if parts == ["events"]:
            events = json.loads(body)["events"]
            kept = [{"id": api.add(**event), **event} for event in events]
            return self.answer(200, {"data": kept})
        if parts == ["events", "stream"]:
            return self.stream()
        return self.refuse(404, "no such path")

    def stream(self):
        events = queue.Queue()
        with self.api.lock:
            self.api.streams.append(events)
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                try:
                    event = events.get(timeout=1)
                    text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                except queue.Empty:
                    text = "event: ping\ndata: {}\n\n"
                self.wfile.write(text.encode())
                self.wfile.flush()
        with self.api.lock:
            self.api.streams.remove(events)


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def panda(method, path, body=None, timeout=300):
    """Asks the PandaStack server."""
    base = os.environ["PANDASTACK_API"].rstrip("/")
    headers = {"authorization": f"Bearer {os.environ['PANDASTACK_API_KEY']}"}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["content-type"] = "application/json"
    request = urllib.request.Request(f"{base}/v1{path}", data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
    return json.loads(text) if text else None


def sandboxes():
    return [one for one in panda("GET", "/sandboxes") if one["metadata"].get("cma.session_id") == SESSION]


def shell(sandbox, line, timeout=300):
    done = panda("POST", f"/sandboxes/{sandbox}/exec", {"cmd": line, "timeout_seconds": timeout}, timeout + 30)
    return done["stdout"].strip()


class Worker:
    """A worker's process; what it writes is kept, and shown when something fails."""

    def __init__(self, command, environment):
        self.lines = []
        self.command, self.environment = command, environment
        self.go_on()

    def go_on(self):
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            print(f"  | {line.rstrip()}", flush=True)

    def says(self, pattern):
        return next((line for line in list(self.lines) if re.search(pattern, line)), None)

    def stop(self, timeout=60):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit("the worker does not end") from None
        self.reader.join(10)
        return code


def same(what, wanted, found):
    if wanted != found:
        raise SystemExit(f"{what} should be {wanted!r} and is {found!r}")
    print(f"{what}: {found!r}", flush=True)


def holds(path, words):
    """Which of the words are in a file, holes left out."""
    found, overlap = set(), max(map(len, words))
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        at = 0
        while at < end:
            try:
                at = file.seek(at, os.SEEK_DATA)
            except OSError:
                break
            stop = file.seek(at, os.SEEK_HOLE)
            while at < stop:
                file.seek(at)
                piece = file.read(min(16 << 20, stop - at) + overlap)
                found.update(word for word in words if word.encode() in piece)
                at += 16 << 20
            at = max(at, stop) if at >= stop else stop
    return found


def keys_kept(sandbox, data_dir, marker, ours):
    """Looks for keys in what a sandbox keeps. The marker has to be found, or it was looked for in the wrong place."""
    secrets = [KEY, TOKEN]
    shell(sandbox, "sync")
    # Spelled so that the command itself is not found. What is older is the template's.
    spelled = " ".join(f"-e '[{word[0]}]{word[1:]}'" for word in secrets)
    recent = f"find / -xdev -path /usr -prune -o -type f -newermt @{STARTED} -print0 | xargs -0 cat 2>/dev/null"
    same("keys in files of the guest", "0", shell(sandbox, f"{recent} | grep -ca {spelled} || true"))
    same("the marker in them", "1", shell(sandbox, f"{recent} | grep -ca '[{marker[0]}]{marker[1:]}' || true"))
    if data_dir is None:
        return
    # Blocks that no file has any more too, and what is kept of its memory.
    panda("POST", f"/sandboxes/{sandbox}/hibernate")
    files = [one for one in Path(data_dir, "pool/sandboxes").rglob("*") if one.is_file() and not one.is_symlink()]
    found = {str(one.relative_to(data_dir)): holds(one, [*secrets, marker]) for one in files}
    print({name: len(words) for name, words in found.items()}, flush=True)
    disks = [words for name, words in found.items() if name.endswith("disk")]
    same("the marker on the disk", True, any(marker in words for words in disks))
    same("keys on the disk", False, any(words & set(secrets) for words in disks))
    same("keys in memory that is kept", not ours, any(words & set(secrets) for words in found.values()))


def template_for(host, port):
    """A template whose runner finds the API there."""
    name = f"claude-agent-{os.urandom(4).hex()}"
    dockerfile = f"FROM claude-agent\nENV ANTHROPIC_BASE_URL=http://{host}:{port} ANT_MAX_IDLE_SECONDS=1\n"
    form = urllib.parse.urlencode({"name": name, "dockerfile": dockerfile}).encode()
    request = urllib.request.Request(
        f"{os.environ['PANDASTACK_API'].rstrip('/')}/v1/templates/build",
        data=form,
        headers={"authorization": f"Bearer {os.environ['PANDASTACK_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        build = json.load(response)

    def done():
        state = panda("GET", f"/templates/builds/{build['id']}")
        if state["status"] == "failed":
            raise SystemExit(f"the template cannot be built: {state}")
        return state["status"] == "done"

    wait("the template is built", done)
    return name


def run(kind, command, host, listener, data_dir):
    ours = kind == "ours"
    api = Anthropic(lambda item, token: token == (TOKEN if item.secret else KEY) if ours else token == KEY)
    server = Quiet((host, 0), type("Scripted", (Handler,), {"api": api}), bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    port = listener.getsockname()[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as outputs:
        environment = {
            **os.environ,
            "ANTHROPIC_ENVIRONMENT_ID": ENVIRONMENT,
            "ANTHROPIC_ENVIRONMENT_KEY": KEY,
            "ANTHROPIC_BASE_URL": f"http://{host}:{port}",
            "CMA_OUTPUTS_DIR": outputs,
            "CMA_MAX_IDLE_SECONDS": "1",
            "CMA_STOP_SECONDS": "1",
            "PANDASTACK_MAX_CREATE_RETRY_SECONDS": "900",
            "PYTHONUNBUFFERED": "1",
        }
        template = None
        if not ours:
            panda("PATCH", "/me", {"network_default": "all"})
            template = environment["CMA_TEMPLATE"] = template_for(host, port)
        worker = Worker(command, environment)
        try:
            turns(api, worker, Path(outputs) / SESSION, ours, data_dir)
            if ours:
                refusals(api, environment, command)
        finally:
            if worker.process.poll() is None:
                worker.process.kill()
            for one in sandboxes():
                panda("DELETE", f"/sandboxes/{one['id']}")
            if template is not None:
                panda("DELETE", f"/templates/{template}")
                panda("PATCH", "/me", {"network_default": None})
            server.shutdown()
            server.server_close()
    print(f"{kind}: everything worked", flush=True)


def sleeps(sandbox):
    return lambda: [one for one in sandboxes() if one["id"] == sandbox and one["status"] == "hibernated"]


def turns(api, worker, outputs, ours, data_dir):
    first = api.begin(1)
    wait("the first item is taken", lambda: first.state != "queued" or worker.process.poll() is not None)
    if worker.process.poll() is not None:
        raise SystemExit("the worker ended")
    marker = "marker" + os.urandom(16).hex()
    keep = f"sleep 100000 & echo $! > /run/kept; echo {marker} > /root/marker; echo draft > /mnt/session/outputs/plan; mkdir -p /mnt/session/outputs/more"
    said = api.call("bash", first, command=f"{keep}; echo deeper > /mnt/session/outputs/more/deep; echo made")
    same("the first result", "made", said.strip())
    if ours:
        # The runner's own variables name the relay, which takes what a runner needs and nothing else.
        base = "base=$(tr '\\0' '\\n' < /proc/$PPID/environ | sed -n 's/^ANTHROPIC_BASE_URL=//p')"
        curl = "curl -s -o /dev/null -w '%{http_code} ' -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' --noproxy '*'"
        event = '-d \'{"events": [{"type": "user.tool_confirmation", "tool_use_id": "x", "result": "allow"}]}\''
        allowed, refused = f"$base/v1/sessions/{SESSION}", f"$base/v1/environments/{ENVIRONMENT}/work/poll"
        line = f"{base}; {curl} {allowed}; {curl} {refused}; {curl} {event} {allowed}/events"
        same("what the relay lets out", "200 403 403", api.call("bash", first, command=line).strip())
    api.end(first)
    sandbox = sandboxes()[0]
    same("sandboxes", 1, len(sandboxes()))
    wait("the sandbox sleeps", sleeps(sandbox["id"]))
    same("an output", "draft\n", (outputs / "plan").read_text())
    same("another", "deeper\n", (outputs / "more/deep").read_text())

    secret = base64.urlsafe_b64encode(json.dumps({"sessions_token": TOKEN}).encode()).decode().rstrip("=")
    second = api.begin(2, secret)
    if ours:
        handed_back(api, worker, second, sandbox["id"])
    alive = "kill -0 $(cat /run/kept) && cat /mnt/session/outputs/plan && echo final > /mnt/session/outputs/plan"
    same("what is left of the first turn", "draft", api.call("bash", second, command=alive).strip())
    if ours:
        found = (
            f"cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -e '[s]{KEY[1:]}' -e '[s]{TOKEN[1:]}'"
        )
        same("keys in processes", "0", shell(sandbox["id"], found))
    api.end(second)
    wait("the sandbox sleeps again", sleeps(sandbox["id"]))
    same("the output now", "final\n", (outputs / "plan").read_text())
    same("sandboxes", 1, len(sandboxes()))
    same("its network", "none" if ours else "all", sandboxes()[0]["network"])
    same("what the scripted server refused", [], [one for one in api.refused if not ours])
    same("how the worker ends", 0, worker.stop())
    if ours:
        same("failures of the worker", None, worker.says("failed|Traceback"))
    keys_kept(sandbox["id"], data_dir, marker, ours)


def handed_back(api, worker, item, sandbox):
    """Stops the worker in the middle of a call, and has another one go on with the turn."""
    line = "if [ -e /run/interrupted ]; then echo once more; else touch /run/interrupted; sleep 100000; fi"
    answers = []
    asking = threading.Thread(target=lambda: answers.append(api.call("bash", item, command=line).strip()), daemon=True)
    asking.start()
    wait("the call runs", lambda: item.state == "active" and shell(sandbox, "ls /run/interrupted 2>/dev/null || true"))
    same("how a worker that is told to stop ends", 0, worker.stop())
    same("its item", "active", item.state)
    same("whether the sandbox sleeps", True, bool(sleeps(sandbox)()))
    # The lease is over.
    with api.lock:
        item.state, item.last, item.given_at = "queued", "", 0.0
    worker.go_on()
    wait("the call is made again", lambda: answers)
    same("the interrupted call, made again", "once more", answers[0])


def refusals(api, environment, command):
    """What our worker says of a runner that fails, and of a key that is not taken."""
    rejected = Worker(command, {**environment, "ANTHROPIC_ENVIRONMENT_KEY": "sk-unknown"})
    same("the exit code with an unknown key", 1, rejected.process.wait(60))
    # A session that the API does not know any more: the runner says so in its log, and the worker repeats it.
    api.accepts = lambda item, token: False
    failing = Worker(command, {**environment, "CMA_ON_IDLE": "delete"})
    item = api.begin(3)
    wait("the runner's reason is in the worker's log", lambda: failing.says("cma-runner.log.*not with this token"))
    wait("the item is ended", lambda: item.state == "stopped")
    wait("the sandbox is deleted", lambda: not sandboxes())
    same("how it ends", 0, failing.stop())


HOST, WORLD = "198.51.100.1", "198.51.100.2"
LEFT = "MANAGED_AGENTS_LEFT"


def leave_the_machine():
    """Goes on in a network and mounts of its own, which go with it."""
    if LEFT not in os.environ:
        os.environ[LEFT] = "yes"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    for line in (
        "mount -t tmpfs tmpfs /run",
        "ip link set lo up",
        "ip netns add world",
        "ip link add uplink type veth peer name peer netns world",
        f"ip address add {HOST}/24 dev uplink",
        "ip link set uplink up",
        f"ip -n world address add {WORLD}/24 dev peer",
        "ip -n world link set peer up",
        "ip -n world link set lo up",
    ):
        subprocess.run(line.split(), check=True)


def listen_in_world():
    """A socket that belongs to the world: the thread that makes it is there."""
    made = []

    def make():
        with open("/run/netns/world") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        made.append(socket.create_server((WORLD, 0)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


@contextlib.contextmanager
def serving(program, data_dir):
    """A server of its own; machines are gone before it is stopped."""
    key = os.environ.get("PANDASTACK_API_KEY") or "pds_" + os.urandom(24).hex()
    command = [program, "serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--uplink", "uplink"]
    command += [
        "--prestarted-vmms",
        "0",
        "--prestarted-networks",
        "0",
        "--cgroups",
        "off",
        *os.environ.get("SERVE_OPTIONS", "").split(),
    ]
    environment = {**os.environ, "PANDASTACK_BOOTSTRAP_KEY": key}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if found := re.search(r"serving on (http://\S+)", line):
                break
        else:
            raise SystemExit("the server ended: " + "".join(said))
        threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
        os.environ.update(PANDASTACK_API=found[1], PANDASTACK_API_KEY=key)
        yield
    finally:
        server.terminate()
        server.wait(60)


def main():
    arguments = sys.argv[1:]
    served = contextlib.nullcontext()
    host, data_dir = "127.0.0.1", None
    if arguments[:1] == ["--serve"]:
        leave_the_machine()
        data_dir = arguments[2]
        served = serving(arguments[1], data_dir)
        arguments = arguments[3:]
        host = WORLD
    if not arguments:
        raise SystemExit(__doc__)
    with served:
        for argument in arguments:
            kind, _, where = argument.partition("=")
            commands = {
                "ours": [where or sys.executable, "-m", "pandastack.cma"],
                "published": [where or sys.executable, "-m", "pandastack", "cma"],
                "npm": ["node", where, "cma"],
            }
            if kind not in commands:
                raise SystemExit(__doc__)
            listener = listen_in_world() if host == WORLD else socket.create_server((host, 0))
            run(kind, commands[kind], host, listener, data_dir)


if __name__ == "__main__":
    main()

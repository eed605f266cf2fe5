"""A web app in a sandbox, seen from outside.

The app is written into the sandbox and started in the background; a link leads to its port, without a key. When the
sandbox sleeps, opening the link wakes it, and the app goes on where it was.

    # Here, in a virtual environment; until 0.11.0 is published, a plain `pip install pandastack` is an older client.
    pip install ../../sdk/python
    export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_…
    python web_preview.py
"""

import os

import httpx
from pandastack import PandaStack

TEMPLATE = os.environ.get("PANDASTACK_TEMPLATE", "code-interpreter")
PORT = 8000

APP = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer

visits = 0

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f"<h1>Hello from a sandbox</h1><p>visit {{visits}}</p>".encode())

server = HTTPServer(("", {PORT}), Page)
print("listening", flush=True)
server.serve_forever()
"""


def main() -> None:
    """Starts the app and visits it."""
    with (
        PandaStack() as client,
        client.sandboxes.create(template=TEMPLATE, ttl_seconds=600, metadata={"example": "web"}) as sandbox,
    ):
        sandbox.files.write("/srv/app.py", APP)
        app = sandbox.processes.start("python3 /srv/app.py", tag="web")
        with app.stream() as output:
            for piece in output:
                print(piece.text, end="")
                if "listening" in piece.text:
                    break
            else:
                raise SystemExit("the app ended")

        # Signed, for ten minutes, on every server. Where previews have names, sandbox.preview_url(PORT) is one without an end.
        link = sandbox.preview(PORT, ttl_seconds=600).url
        print(f"open {link}")
        print(httpx.get(link, timeout=30).raise_for_status().text)
        print(httpx.get(link, timeout=30).raise_for_status().text)

        sandbox.hibernate()
        print(f"now it is {sandbox.refresh().status}")
        print(httpx.get(link, timeout=60).raise_for_status().text)


if __name__ == "__main__":
    main()

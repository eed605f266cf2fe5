/** What a newcomer meets: waiting for templates, names, sizes, code that keeps its state, watched files, signed URLs, forwards. */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { connect } from "node:net";
import type { ServerResponse } from "node:http";
import { test } from "node:test";

import {
  CapacityError,
  CommandError,
  NotFoundError,
  PandaStack,
  SandboxTimeout,
  type FileEvent,
  type Result,
  type TemplateProgress,
  type VolumeMount,
} from "@pandastack/sdk";

import { json, sandboxBody, serving, type Arrived, type Handler } from "./server.js";

/** What is used of `ws`, which has no types of its own. */
interface Tunnel {
  on(event: "message", listener: (data: Buffer, binary: boolean) => void): void;
  send(data: Buffer | string): void;
  close(code: number): void;
  terminate(): void;
}
interface Tunnels {
  clients: Set<Tunnel>;
  once(event: "listening", listener: (value: unknown) => void): void;
  on(event: "connection", listener: (socket: Tunnel, request: { url?: string }) => void): void;
  address(): unknown;
  close(done: (value: unknown) => void): void;
}
const { WebSocketServer } = createRequire(import.meta.url)("ws") as {
  WebSocketServer: new (options: { port: number; host: string }) => Tunnels;
};

const event = (name: string, data: unknown) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const sse = (response: ServerResponse) => response.writeHead(200, { "content-type": "text/event-stream" });
const sent = (request: Arrived | undefined) => JSON.parse(String(request?.body)) as unknown;

const boxThen =
  (rest: Handler): Handler =>
  (request, response, count) =>
    request.method === "GET" && request.path === "/v1/sandboxes/box"
      ? json(response, 200, sandboxBody())
      : rest(request, response, count);

/** A server that prepares a template: `steps` say how far it is, one after the other; then there is a sandbox. */
const preparing =
  (steps: string[]): Handler =>
  (_, response, count) => {
    const step = steps[count];
    if (step === undefined) return json(response, 201, sandboxBody());
    const progress = { step, started_at: "2026-01-01T00:00:00Z", changed_at: `at ${step}` };
    const body = { error: "template base is being prepared", code: "template_preparing", request_id: "r", progress };
    json(response, 503, body, { "retry-after": "0.01" });
  };

test("a template that is prepared is waited for while it moves, past the time for a full server", async () => {
  await serving(
    preparing(["one", "one", "two", "three"]),
    async ({ client, arrived }) => {
      const seen: TemplateProgress[] = [];
      const sandbox = await client.sandboxes.create({ onProgress: (progress) => seen.push(progress) });
      assert.equal(sandbox.id, "box");
      assert.equal(arrived.length, 5);
      assert.deepEqual(seen.map(({ step }) => step), ["one", "one", "two", "three"]);
      assert.deepEqual([seen[0]?.startedAt, seen[0]?.changedAt], ["2026-01-01T00:00:00Z", "at one"]);
    },
    { maxCreateRetrySeconds: 0 },
  );
});

test("waiting for a template ends when it does not move, takes too long, or is no longer wanted", async () => {
  const stuck = preparing(Array.from({ length: 10_000 }, () => "stuck"));
  const moving = preparing(Array.from({ length: 10_000 }, (_, index) => `step ${index}`));
  const refused = (error: unknown) => {
    assert.ok(error instanceof CapacityError);
    assert.equal(error.code, "template_preparing");
    assert.ok(error.progress?.step);
    return true;
  };
  await serving(stuck, async ({ client }) => assert.rejects(client.sandboxes.create(), refused), { templateStallSeconds: 0.1 });
  await serving(moving, async ({ client }) => {
    await assert.rejects(client.sandboxes.create({ maxCreateWaitSeconds: 0.1 }), refused);
    await assert.rejects(client.sandboxes.create({ signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
    const failing = client.sandboxes.create({
      onProgress: () => {
        throw new RangeError("no more");
      },
    });
    await assert.rejects(failing, RangeError);
  });
});

test("on a terminal one line shows the progress, and is cleared; elsewhere nothing is written", async () => {
  const { stderr, env } = process;
  const [isTTY, write, term] = [stderr.isTTY, stderr.write, env["TERM"]];
  const written: string[] = [];
  try {
    env["TERM"] = "xterm";
    stderr.write = ((text: string) => written.push(text) > 0) as typeof stderr.write;
    stderr.isTTY = false;
    await serving(preparing(["one"]), async ({ client }) => void (await client.sandboxes.create()));
    assert.deepEqual(written, []);
    stderr.isTTY = true;
    await serving(preparing(["one"]), async ({ client }) => void (await client.sandboxes.create({ onProgress: false })));
    assert.deepEqual(written, []);
    await serving(preparing(["one", "t\u001bwo"]), async ({ client }) => void (await client.sandboxes.create({ template: "base" })));
  } finally {
    [stderr.isTTY, stderr.write] = [isTTY, write];
    if (term === undefined) delete env["TERM"];
    else env["TERM"] = term;
  }
  assert.deepEqual(written, [
    "\r\u001b[Kpreparing template base: one (0 s)",
    "\r\u001b[Kpreparing template base: t wo (0 s)",
    "\r\u001b[K",
  ]);
});

test("a client takes a token for a key, and an apiUrl for a baseUrl", () => {
  const client = new PandaStack({ token: "pds_t", apiUrl: "http://127.0.0.1:1" });
  assert.deepEqual([client.apiKey, client.baseUrl, client.sandbox === client.sandboxes], ["pds_t", "http://127.0.0.1:1", true]);
});

test("sandboxes have sizes, names and mounted volumes, and their warnings are told once", async () => {
  const told: Error[] = [];
  const listen = (warning: Error) => void (warning.name === "PandaStackWarning" && told.push(warning));
  process.on("warning", listen);
  const answer = sandboxBody("box", {
    name: "agent",
    disk_gb: 9,
    ancestors: ["a", "b"],
    warnings: ["there is no uplink"],
    volumes: [{ name: "data", read_only: true, device: "/dev/vdb", mount: "/mnt" }],
  });
  await serving(
    (_, response) => json(response, 201, answer),
    async ({ client, arrived }) => {
      const volumes: VolumeMount[] = ["a", "b:/mnt", "c:/srv:ro", { name: "d", mount: "/d", readOnly: true }];
      const sandbox = await client.sandboxes.create({ name: "agent", cpu: 2, memoryMb: 1024, diskGb: 9, template: "base", volumes });
      assert.deepEqual(sent(arrived[0]), {
        name: "agent",
        template: "base",
        disk_gb: 9,
        cpu: 2,
        memory_mb: 1024,
        volumes: [
          { name: "a" },
          { name: "b", mount: "/mnt" },
          { name: "c", mount: "/srv", read_only: true },
          { name: "d", mount: "/d", read_only: true },
        ],
      });
      assert.deepEqual([sandbox.name, sandbox.info.diskGb, sandbox.ancestors], ["agent", 9, ["a", "b"]]);
      assert.deepEqual([sandbox.info.warnings, sandbox.info.volumes[0]?.mount], [["there is no uplink"], "/mnt"]);
      await sandbox.patch({ name: null });
      assert.deepEqual([arrived[1]?.method, sent(arrived[1])], ["PATCH", { name: null }]);
      for (const wrong of ["", ":/mnt", "a:", "a:/mnt:rx", "a:/mnt:ro:x"]) {
        await assert.rejects(client.sandboxes.create({ volumes: [wrong] }), TypeError, wrong);
      }
    },
  );
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  assert.deepEqual(told.map(({ message }) => message), ["there is no uplink"]);
});

test("lists are filtered, and what fits a filter is deleted; a mistake does not delete more", async () => {
  await serving(
    ({ method }, response) => json(response, 200, method === "GET" ? [sandboxBody()] : { deleted: ["a_b"], failures: { c_d: "busy" } }),
    async ({ client, arrived }) => {
      const filter = { status: ["running", "paused"], template: "base", name: "n", parent: "p", root: "r" } as const;
      await client.sandboxes.list({ ...filter, metadata: { task: "a=b", owner: true } });
      assert.equal(
        String(arrived[0]?.query),
        "status=running&status=paused&template=base&name=n&metadata=task%3Da%3Db&metadata=owner&parent=p&root=r",
      );
      assert.deepEqual(await client.sandboxes.deleteAll({ status: "failed" }), { deleted: ["a_b"], failures: { c_d: "busy" } });
      await client.sandboxes.deleteAll({ all: true });
      assert.deepEqual(arrived.slice(1).map(({ method, query }) => `${method} ${query}`), ["DELETE status=failed", "DELETE all=true"]);
      await assert.rejects(client.sandboxes.deleteAll({ template: "base", name: undefined }), TypeError);
      await assert.rejects(client.sandboxes.deleteAll({ status: [] }), TypeError);
      assert.equal(arrived.length, 3);
    },
  );
});

test("a sandbox knows its relatives, a workspace its network", async () => {
  const tree = { id: "a", status: "deleted", children: [{ id: "box", status: "running", fork_index: 0, children: [] }] };
  await serving(
    boxThen(({ path }, response) =>
      path === "/v1/me"
        ? json(response, 200, { workspace: "w", network_default: "all" })
        : json(response, 200, { root: "a", ancestors: [{ id: "a", status: "deleted" }], tree, snapshots: [{ id: "s", sandbox_id: "a" }] }),
    ),
    async ({ client, arrived }) => {
      const found = await (await client.sandboxes.get("box")).tree();
      assert.deepEqual([found.root, found.ancestors[0]?.id, found.tree.children[0]?.forkIndex], ["a", "a", 0]);
      assert.equal(found.snapshots[0]?.sandboxId, "a");
      assert.equal((await client.me()).networkDefault, "all");
      await client.setNetworkDefault(null);
      assert.deepEqual(sent(arrived.at(-1)), { network_default: null });
    },
  );
});

test("a timeout keeps what was written, a failure its hint", async () => {
  const partial = { stdout: "half", stderr: "e", truncated: true, results: [{ "text/plain": "1" }] };
  await serving(
    boxThen(({ path }, response) =>
      path.endsWith("/exec")
        ? json(response, 200, { stdout: "", stderr: "no route", exit_code: 7, duration_ms: 1, truncated: false, process_id: 1, hint: "open it" })
        : json(response, 504, { error: "took too long", code: "timeout", hint: "raise it", request_id: "r", partial }),
    ),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      await assert.rejects(sandbox.runCode("x"), (error: unknown) => {
        assert.ok(error instanceof SandboxTimeout);
        const { stdout, stderr, truncated, results, hint, statusCode } = error;
        assert.deepEqual([stdout, stderr, truncated, results[0]?.["text/plain"]], ["half", "e", true, "1"]);
        assert.deepEqual([hint, statusCode], ["raise it", 504]);
        assert.equal(error.message, "took too long\nlast of stdout: half\nlast of stderr: e");
        return true;
      });
      assert.equal((await sandbox.exec("curl x", { timeoutSeconds: 5 })).hint, "open it");
      await assert.rejects(sandbox.exec("curl x", { timeoutSeconds: 5, check: true }), (error: unknown) => {
        assert.ok(error instanceof CommandError);
        assert.deepEqual([error.message, error.hint], ["`curl x` exited with 7: no route\nhint: open it", "open it"]);
        return true;
      });
    },
  );
});

test("code runs in the sandbox's own context, in another one, or once", async () => {
  const cell = { stdout: "", stderr: "", exit: 0, exit_code: 0, duration_ms: 1, results: [{ "text/plain": "42" }], context_id: "c" };
  await serving(
    boxThen((_, response) => json(response, 200, cell)),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      const last = () => [arrived.at(-1)?.path.split("/box/")[1], sent(arrived.at(-1))];
      const ran = await sandbox.runCode("x + 1");
      assert.deepEqual([ran.text, ran.contextId, ran.exitCode, ran.error], ["42", "c", 0, undefined]);
      assert.deepEqual(last(), ["repl/sessions/default/run", { code: "x + 1" }]);
      await sandbox.runCode("1", { language: "javascript", timeoutSeconds: 2 });
      assert.deepEqual(last(), ["repl/sessions/default/run", { code: "1", timeout_ms: 2000, language: "javascript" }]);
      await sandbox.runCode("1", { context: "other" });
      assert.deepEqual(last(), ["repl/sessions/other/run", { code: "1" }]);
      await sandbox.runCode("1", { once: true });
      assert.deepEqual(last(), ["repl", { language: "python", code: "1", timeout_ms: 30_000 }]);
      await sandbox.runCode("1", { language: "ruby" });
      assert.deepEqual(last(), ["repl", { language: "ruby", code: "1", timeout_ms: 30_000 }]);
      await sandbox.runCode("1", "shell");
      assert.deepEqual(last(), ["repl", { language: "sh", code: "1", timeout_ms: 30_000 }]);
      const count = arrived.length;
      await assert.rejects(sandbox.runCode("1", { once: true, context: "other" }), TypeError);
      await assert.rejects(sandbox.runCode("1", { once: true, onStdout: () => undefined }), TypeError);
      await assert.rejects(sandbox.runCode("1", { context: "other", language: "bash" }), TypeError);
      assert.equal(arrived.length, count);
    },
  );
});

test("a cell is followed while it runs", async () => {
  let ending = event("exit", { exit: 1, exit_code: 1, error: "Traceback", duration_ms: 5, context_id: "c" });
  const begin = event("stdout", { chunk: "a" }) + event("result", { "text/plain": "1" }) + event("stderr", { chunk: "b" });
  await serving(
    boxThen((_, response) => void sse(response).end(`: ping\n\n${begin}${event("stdout", { chunk: "c" })}${ending}`)),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      const [out, err, results]: [string[], string[], Result[]] = [[], [], []];
      const follow = {
        onStdout: (chunk: string) => out.push(chunk),
        onStderr: (chunk: string) => err.push(chunk),
        onResult: (result: Result) => results.push(result),
      };
      const ran = await sandbox.runCode("x", follow);
      assert.equal(arrived.at(-1)?.path, "/v1/sandboxes/box/repl/sessions/default/run/stream");
      assert.deepEqual([out, err, results.map(({ text }) => text)], [["a", "c"], ["b"], ["1"]]);
      assert.deepEqual([ran.stdout, ran.stderr, ran.text, ran.exitCode, ran.error], ["ac", "b", "1", 1, "Traceback"]);
      assert.deepEqual([ran.durationMs, ran.contextId], [5, "c"]);
      ending = event("error", { error: "interrupted", code: "timeout", hint: "h", partial: { stdout: "a" } });
      await assert.rejects(sandbox.runCode("x", follow), (error: unknown) => {
        assert.ok(error instanceof SandboxTimeout);
        assert.deepEqual([error.stdout, error.stderr, error.results.length, error.hint], ["ac", "b", 1, "h"]);
        assert.equal(error.message, "interrupted\nlast of stdout: ac\nlast of stderr: b");
        return true;
      });
      ending = event("error", { error: "the interpreter ended", code: "internal" });
      await assert.rejects(sandbox.runCode("x", follow), { name: "ServerError", message: "the interpreter ended" });
      ending = "";
      await assert.rejects(sandbox.runCode("x", follow), { name: "ExecInterrupted" });
    },
  );
});

test("paths are below the guest's home unless they say otherwise; it is asked once", async () => {
  await serving(
    boxThen(({ path, query }, response) => {
      if (path.endsWith("/exec")) return json(response, 200, { stdout: "/home/agent\n", stderr: "", exit_code: 0 });
      if (path.endsWith("/mkdir")) return response.writeHead(204).end();
      if (path.endsWith("/sign")) return json(response, 200, { url: "/v1/f/token", method: "PUT", path: "x", expires_at: "then" });
      json(response, 200, { path: query.get("path"), bytes: 1 });
    }),
    async ({ client, arrived, url }) => {
      const { files } = await client.sandboxes.get("box");
      assert.equal((await files.write("a/b", "x")).path, "/home/agent/a/b");
      assert.equal((await files.write("/a", "x")).path, "/a");
      for (const [given, absolute] of [[".", ""], ["~", ""], ["./", ""], ["././a", "/a"], ["~/a", "/a"], ["~a", "/~a"], [".a", "/.a"]]) {
        assert.equal((await files.write(given as string, "x")).path, `/home/agent${absolute}`);
      }
      await files.mkdir("made");
      assert.deepEqual(sent(arrived.at(-1)), { path: "/home/agent/made" });
      assert.equal(await files.uploadUrl("up", { expiresInSeconds: 60 }), `${url}/v1/f/token`);
      assert.deepEqual(sent(arrived.at(-1)), { path: "/home/agent/up", operation: "write", expires_in_seconds: 60 });
      await files.downloadUrl("/down");
      assert.deepEqual(sent(arrived.at(-1)), { path: "/down", operation: "read" });
      assert.equal((await files.signUrl("/down", "read")).expiresAt, "then");
      assert.equal(arrived.filter(({ path }) => path.endsWith("/exec")).length, 1);
    },
  );
});

test("a watcher tells of changes until it is closed, left, or the server says why not", async () => {
  let text = event("ready", {});
  let live: ServerResponse | undefined;
  await serving(
    boxThen((_, response) => {
      live = sse(response);
      live.write(text);
    }),
    async ({ client, arrived }) => {
      const { files } = await client.sandboxes.get("box");
      const watcher = files.watch("/srv", { recursive: true });
      await watcher.ready;
      assert.equal(String(arrived.at(-1)?.query), "path=%2Fsrv&recursive=true");
      live?.write(event("change", { path: "/srv/a", kind: "moved", is_dir: false, to: "/srv/b" }) + event("overflow", {}));
      const seen: FileEvent[] = [];
      for await (const one of watcher) {
        seen.push(one);
        if (seen.length === 2) watcher.close();
      }
      assert.deepEqual(seen, [
        { path: "/srv/a", kind: "moved", isDir: false, to: "/srv/b" },
        { path: "/srv", kind: "overflow", isDir: true },
      ]);

      text = event("ready", {}) + event("change", { path: "/srv/c", kind: "created", is_dir: true });
      for await (const { path } of files.watch("/srv")) {
        assert.equal(path, "/srv/c");
        break;
      }
      text = event("error", { error: "no such file", code: "not_found" });
      const missing = files.watch("/none");
      await assert.rejects(missing.ready, NotFoundError);
      await assert.rejects(missing[Symbol.asyncIterator]().next(), NotFoundError);
      text = event("ready", {});
      const aborted = files.watch("/srv", { signal: AbortSignal.timeout(50) });
      await assert.rejects(aborted[Symbol.asyncIterator]().next(), { name: "TimeoutError" });
      const closed = files.watch("/srv");
      closed.close();
      assert.equal((await closed[Symbol.asyncIterator]().next()).done, true);
    },
  );
});

test("a port of this machine leads to one of the sandbox, and each side may end first", async () => {
  const tunnels = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await new Promise((resolve) => tunnels.once("listening", resolve));
  const paths: (string | undefined)[] = [];
  // Answers when its client has nothing more to say, as many programs do.
  tunnels.on("connection", (socket, request) => {
    paths.push(request.url);
    const heard: Buffer[] = [];
    socket.on("message", (data: Buffer, binary) => {
      if (binary) return void heard.push(data);
      assert.deepEqual(JSON.parse(String(data)), { eof: true });
      socket.send(Buffer.concat(heard));
      socket.send(JSON.stringify({ eof: true }));
      socket.close(1000);
    });
  });
  const { port } = tunnels.address() as { port: number };
  const client = new PandaStack({ apiKey: "k", baseUrl: `http://127.0.0.1:${port}` });
  const sandbox = client.sandboxes.fromInfo({ id: "box" });
  const forward = await sandbox.portForward(5432);
  try {
    const payload = Buffer.alloc(3_000_000, "panda");
    const local = connect({ port: forward.localPort, host: forward.host, allowHalfOpen: true });
    const back: Buffer[] = [];
    local.on("data", (bytes: Buffer) => back.push(bytes));
    const ended = new Promise((resolve) => local.once("end", resolve));
    local.end(payload);
    await ended;
    assert.ok(Buffer.concat(back).equals(payload), `${Buffer.concat(back).length} bytes came back`);
    assert.deepEqual(paths, ["/v1/sandboxes/box/ports/5432/tcp"]);
  } finally {
    await forward.close();
    for (const socket of tunnels.clients) socket.terminate();
    await new Promise((resolve) => tunnels.close(resolve));
  }
  await assert.rejects(sandbox.portForward(0), RangeError);
});

test("a connection that cannot be passed on is closed, and why is told", async () => {
  await serving(
    (_, response) => json(response, 200, sandboxBody()),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      const failures: unknown[] = [];
      await using forward = await sandbox.portForward(9, { onError: (error) => failures.push(error) });
      const local = connect(forward.localPort, "127.0.0.1");
      local.on("error", () => undefined);
      await new Promise((resolve) => local.once("close", resolve).resume());
      assert.match(String(failures[0]), /could not open port 9 of the sandbox/);
    },
  );
});

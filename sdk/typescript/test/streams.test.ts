/** Streams, processes, files and terminals, against a server that answers as it is told. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import {
  CommandError,
  ExecInterrupted,
  NotFoundError,
  PandaStackError,
  SandboxTimeout,
  type OutputEvent,
  type TransferProgress,
} from "@pandastack/sdk";

import { json, sandboxBody, serving, type Arrived } from "./server.js";

/** Answers with a stream of exactly this text, in pieces of so many bytes. */
function stream(response: ServerResponse, text: string, pieceBytes = 7): void {
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += pieceBytes) response.write(bytes.subarray(at, at + pieceBytes));
  response.end();
}

const event = (name: string, data: unknown) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

const boxThen =
  (rest: (request: Arrived, response: ServerResponse, count: number) => void) =>
  (request: Arrived, response: ServerResponse, count: number): void =>
    request.method === "GET" && request.path === "/v1/sandboxes/box"
      ? json(response, 200, sandboxBody())
      : rest(request, response, count);

test("a command's events come in order, however they are cut", async () => {
  const text =
    ": ping\n\n" +
    event("stdout", { chunk: "one\n" }) +
    event("later", { what: "nobody knows" }) +
    event("stderr", { chunk: "🐼 \u2028 end" }) +
    "event: stdout\r\ndata: {\"chunk\":\r\ndata: \"crlf\"}\r\n\r\n" +
    event("exit", { exit_code: 5 });
  for (const pieceBytes of [1, 2, 7, 10_000]) {
    await serving(
      boxThen((_, response) => stream(response, text, pieceBytes)),
      async ({ client }) => {
        const sandbox = await client.sandboxes.get("box");
        const events: OutputEvent[] = [];
        for await (const one of sandbox.execStream("make")) events.push(one);
        assert.deepEqual(events, [
          { type: "stdout", text: "one\n" },
          { type: "stderr", text: "🐼 \u2028 end" },
          { type: "stdout", text: "crlf" },
          { type: "exit", exitCode: 5 },
        ]);
      },
    );
  }
});

test("awaiting a stream gives its exit code, exec with callbacks the whole result", async () => {
  await serving(
    boxThen((_, response) =>
      stream(response, event("stdout", { chunk: "out" }) + event("stderr", { chunk: "err" }) + event("exit", { exit_code: 3 })),
    ),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      assert.equal(await sandbox.execStream("x"), 3);
      const seen: string[] = [];
      const result = await sandbox.exec(["echo", "a b", "it's"], { onStdout: (chunk) => seen.push(chunk), cwd: "/tmp" });
      assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.exit_code], ["out", "err", 3, 3]);
      assert.deepEqual(seen, ["out"]);
      assert.deepEqual(JSON.parse(String(arrived.at(-1)?.body)), { cmd: ["echo", "a b", "it's"], cwd: "/tmp" });
      await assert.rejects(sandbox.exec("x", { check: true, onStdout: () => undefined }), (error: unknown) => {
        assert.ok(error instanceof CommandError);
        assert.deepEqual([error.exitCode, error.stdout, error.stderr], [3, "out", "err"]);
        return true;
      });
      const once = sandbox.execStream("x");
      assert.equal(await once, 3);
      assert.equal(await once, 3);
      assert.equal(arrived.filter(({ path }) => path.endsWith("/stream")).length, 4);
    },
  );
});

test("a stream that ends early is an interruption, one that says timeout a timeout", async () => {
  let text = event("stdout", { chunk: "half" });
  await serving(
    boxThen((_, response) => stream(response, text)),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      await assert.rejects(sandbox.execStream("x"), ExecInterrupted);
      text = event("error", { error: "command timeout after 1 s" });
      await assert.rejects(sandbox.execStream("x"), SandboxTimeout);
      text = event("stdout", { chunk: "whole" }) + event("error", { error: "late", code: "timeout", partial: { stdout: "who" } });
      await assert.rejects(sandbox.exec("x", { onStdout: () => undefined }), { name: "SandboxTimeout", stdout: "whole" });
      await assert.rejects(sandbox.execStream("x"), { name: "SandboxTimeout", stdout: "whole", code: "timeout" });
      text = event("error", { error: "the machine ended" });
      await assert.rejects(sandbox.execStream("x"), { name: "ExecInterrupted", message: "the machine ended" });
      text = "event: exit\ndata: {\"exit_code\": 0}";
      await assert.rejects(sandbox.execStream("x"), ExecInterrupted, "half an event is none");
    },
  );
});

test("a connection that breaks in the middle is an interruption, one that never was a network error", async () => {
  await serving(
    boxThen((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(event("stdout", { chunk: "half" }));
      setTimeout(() => response.destroy(), 20);
    }),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      const seen: string[] = [];
      await assert.rejects(sandbox.exec("x", { onStdout: (text) => seen.push(text) }), ExecInterrupted);
      assert.deepEqual(seen, ["half"]);
    },
  );
  await serving(
    boxThen((_, response) => void response.destroy()),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      await assert.rejects(sandbox.execStream("x"), { name: "NetworkError" });
    },
  );
});

test("exec waits for a sandbox that does not answer yet, also when it follows; execStream does not", async () => {
  let cold = 1;
  await serving(
    boxThen((_, response) =>
      cold-- > 0
        ? json(response, 502, { error: "dial: connect: connection refused" })
        : stream(response, event("exit", { exit_code: 0 })),
    ),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      assert.equal((await sandbox.exec("true")).exitCode, 0);
      assert.equal(arrived.length, 3);
      cold = 1;
      await assert.rejects(sandbox.execStream("true"), { statusCode: 502 });
    },
  );
});

test("leaving the loop closes the connection", async () => {
  let closed: () => void = () => undefined;
  const gone = new Promise<void>((resolve) => (closed = resolve));
  await serving(
    boxThen((_, response) => {
      response.on("close", closed);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(event("line", { line: "first\n" }));
    }),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      for await (const line of sandbox.logs({ follow: true })) {
        assert.equal(line, "first");
        break;
      }
      await gone;
    },
  );
});

test("a process is followed on where the connection broke", async () => {
  await serving(
    boxThen((request, response, count) => {
      if (request.method === "POST") return json(response, 201, { id: 4, pid: 99, command: "x", running: true, tag: "web" });
      if (count === 2) {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event("stdout", { chunk: "grüße " }) + event("stderr", { chunk: "e" }));
        setTimeout(() => response.destroy(), 50);
        return;
      }
      assert.equal(request.query.get("stdout_offset"), "8");
      assert.equal(request.query.get("stderr_offset"), "1");
      stream(response, event("stdout", { chunk: "again" }) + event("exit", { exit_code: 143 }));
    }),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      const process = await sandbox.processes.start("x", { tag: "web" });
      assert.deepEqual([process.id, process.pid, process.tag], [4, 99, "web"]);
      const result = await process.wait();
      assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["grüße again", "e", 143]);
    },
  );
});

test("files are bytes, text when asked for as such, and streams both ways", async () => {
  const stored = new Map<string, Buffer>();
  await serving(
    boxThen(({ method, path, query, body, headers }, response) => {
      assert.equal(path, "/v1/sandboxes/box/fs");
      const name = query.get("path") ?? "";
      if (method === "PUT") {
        assert.equal(headers["content-type"], "application/octet-stream");
        stored.set(name, body);
        return json(response, 200, { path: name, bytes: body.length });
      }
      const found = stored.get(name);
      if (found === undefined) return json(response, 404, { error: "no such file", code: "not_found" });
      response.end(found);
    }),
    async ({ client }) => {
      const { filesystem } = await client.sandboxes.get("box");
      await filesystem.write("/a ä&b", "grüße");
      assert.equal(await filesystem.read("/a ä&b"), "grüße");
      const binary = new Uint8Array([0, 255, 10, 13, 254]);
      await filesystem.write("/binary", binary);
      assert.deepEqual(await filesystem.readBytes("/binary"), binary);
      await filesystem.write("/blob", new Blob([binary]));
      assert.deepEqual(await filesystem.readBytes("/blob"), binary);
      const pieces = async function* () {
        for (let piece = 0; piece < 64; piece++) yield new Uint8Array(65_536).fill(piece);
      };
      assert.equal((await filesystem.write("/large", pieces())).bytes, 64 * 65_536);
      const hash = createHash("sha256");
      for await (const bytes of filesystem.readStream("/large")) hash.update(bytes);
      assert.equal(hash.digest("hex"), createHash("sha256").update(stored.get("/large") ?? "").digest("hex"));
      await assert.rejects(filesystem.read("/none"), NotFoundError);
    },
  );
});

test("directories go up and come back, links as links unless they lead out", async () => {
  const stored = new Map<string, Buffer>();
  const modes = new Map<string, string>();
  const directories = new Set<string>();
  let links: Record<string, string> = {};
  const entry = (path: string) => {
    const body = stored.get(path);
    return {
      name: path.split("/").at(-1),
      path,
      is_dir: body === undefined,
      size: body?.length ?? 0,
      mode: body === undefined ? "drwxr-xr-x" : modes.has(path) ? "-rwxr-xr-x" : "-rw-r--r--",
      mtime: 1,
    };
  };
  await serving(
    boxThen(({ method, path, query, body }, response) => {
      const name = query.get("path") ?? "";
      if (method === "PUT") {
        stored.set(name, body);
        for (let at = name.lastIndexOf("/"); at > 0; at = name.lastIndexOf("/", at - 1)) directories.add(name.slice(0, at));
        return json(response, 200, { path: name, bytes: body.length });
      }
      if (method === "POST") {
        const change = JSON.parse(String(body)) as { path: string; mode: string; cmd: string[] };
        if (path.endsWith("/exec")) {
          assert.deepEqual([change.cmd[0], change.cmd[1], change.cmd[3]], ["sh", "-c", "sh"]);
          for (let at = 4; at < change.cmd.length; at += 2) links[change.cmd[at] ?? ""] = change.cmd[at + 1] ?? "";
          return json(response, 200, { stdout: "", stderr: "", exit_code: 0, duration_ms: 1, process_id: 1, truncated: false });
        }
        if (path.endsWith("/mkdir")) directories.add(change.path);
        else modes.set(change.path, change.mode);
        return response.writeHead(204).end();
      }
      if (path.endsWith("/stat")) return json(response, 200, entry(name));
      if (path.endsWith("/dir")) {
        const children = [...directories, ...stored.keys()].filter((one) => one.slice(0, one.lastIndexOf("/")) === name);
        const linked = Object.entries(links).filter(([one]) => one.slice(0, one.lastIndexOf("/")) === name);
        const shown = linked.map(([one, target]) => ({ ...entry(one), mode: "lrwxrwxrwx", link_target: target }));
        return json(response, 200, { path: name, entries: [...children.map(entry), ...shown], truncated: false });
      }
      response.end(stored.get(name));
    }),
    async ({ client }) => {
      const { filesystem } = await client.sandboxes.get("box");
      const local = await mkdtemp(join(tmpdir(), "pandastack-"));
      try {
        await mkdir(join(local, "up", "sub", "empty"), { recursive: true });
        await writeFile(join(local, "up", "a.txt"), "one");
        await writeFile(join(local, "up", "sub", "large"), Buffer.alloc(1_000_000, 7));
        await writeFile(join(local, "up", "sub", "run.sh"), "#!/bin/sh\n");
        await chmod(join(local, "up", "sub", "run.sh"), 0o755);
        await symlink("/etc/passwd", join(local, "up", "absolute"));
        await symlink("../a.txt", join(local, "up", "sub", "inside"));
        const seen: TransferProgress[] = [];
        const up = await filesystem.upload(join(local, "up"), "/tree", { onProgress: (one) => seen.push(one) });
        assert.deepEqual([up.files, up.bytes, up.links, up.skipped], [3, 1_000_013, 2, []]);
        assert.deepEqual(links, { "/tree/absolute": "/etc/passwd", "/tree/sub/inside": "../a.txt" });
        assert.deepEqual([seen.at(-1)?.bytes, seen.at(-1)?.totalBytes, seen.at(-1)?.files], [1_000_013, 1_000_013, 3]);
        assert.deepEqual([...stored.keys()].sort(), ["/tree/a.txt", "/tree/sub/large", "/tree/sub/run.sh"]);
        assert.deepEqual([...modes.keys()], ["/tree/sub/run.sh"]);

        links = { ...links, "/tree/sub/out": "../../x", "/tree/sub/twisted": "up/../x", "/tree/again": "sub/./run.sh" };
        const down = await filesystem.download("/tree", join(local, "down"));
        assert.deepEqual([down.files, down.bytes, down.links], [3, 1_000_013, 2]);
        assert.deepEqual([...down.skipped].sort(), ["/tree/absolute", "/tree/sub/out", "/tree/sub/twisted"]);
        assert.equal(await readlink(join(local, "down", "sub", "inside")), "../a.txt");
        assert.equal(await readlink(join(local, "down", "again")), "sub/./run.sh");
        assert.equal(await readFile(join(local, "down", "a.txt"), "utf8"), "one");
        assert.ok((await readFile(join(local, "down", "sub", "large"))).equals(Buffer.alloc(1_000_000, 7)));
        assert.equal((await stat(join(local, "down", "sub", "run.sh"))).mode & 0o111, 0o111);
        assert.deepEqual((await readdir(join(local, "down", "sub"))).sort(), ["empty", "inside", "large", "run.sh"]);

        // A link from an earlier download, where the guest has a directory now: nothing goes through it.
        await rm(join(local, "down", "sub"), { recursive: true });
        await mkdir(join(local, "elsewhere"));
        await symlink(join(local, "elsewhere"), join(local, "down", "sub"));
        await filesystem.download("/tree", join(local, "down"));
        assert.deepEqual(await readdir(join(local, "elsewhere")), []);
        assert.ok((await lstat(join(local, "down", "sub"))).isDirectory());
      } finally {
        await rm(local, { recursive: true });
      }
    },
  );
});

test("a guest cannot make a download leave its directory", async () => {
  for (const name of ["..", "../escape", "a/b", "", "a\\b"]) {
    await serving(
      boxThen(({ path, query }, response) => {
        if (path.endsWith("/stat")) return json(response, 200, { name: "x", path: "/x", is_dir: true, size: 0, mode: "drwx", mtime: 1 });
        const entries = [{ name, path: `/x/${name}`, is_dir: false, size: 1, mode: "-rw-r--r--", mtime: 1 }];
        return json(response, 200, { path: query.get("path"), entries, truncated: false });
      }),
      async ({ client }) => {
        const { filesystem } = await client.sandboxes.get("box");
        const local = await mkdtemp(join(tmpdir(), "pandastack-"));
        try {
          await assert.rejects(filesystem.download("/x", join(local, "into")), PandaStackError);
          assert.deepEqual(await readdir(local), ["into"]);
          assert.deepEqual(await readdir(join(local, "into")), []);
        } finally {
          await rm(local, { recursive: true });
        }
      },
    );
  }
});

test("cells have rich results", async () => {
  await serving(
    boxThen(({ path }, response) => {
      if (path.endsWith("/sessions")) {
        return json(response, 201, { id: "c", sandbox_id: "box", language: "python", created_at: "now", cells: 0 });
      }
      return json(response, 200, {
        stdout: "out",
        stderr: "",
        exit: 0,
        exit_code: 0,
        duration_ms: 2,
        results: [
          { "image/png": "aVZC", "text/plain": "<Figure>" },
          { type: "application/json", data: '{"a_b":1}' },
          { "text/html": "<b>x</b>", "text/plain": "x" },
        ],
      });
    }),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      const context = await sandbox.createCodeContext("python3");
      const cell = await context.runCode("x", { timeoutSeconds: 1.5 });
      assert.deepEqual(JSON.parse(String(arrived.at(-1)?.body)), { code: "x", timeout_ms: 1500 });
      assert.deepEqual(JSON.parse(String(arrived.at(-2)?.body)), { language: "python" });
      assert.deepEqual([cell.text, cell.png, cell.exitCode, cell.error], ["x", "aVZC", 0, undefined]);
      assert.deepEqual(cell.results[1]?.json, { a_b: 1 });
      assert.equal(cell.results[0]?.chart, "aVZC");
      assert.deepEqual(cell.results[2]?.formats, ["text/html", "text/plain"]);
    },
  );
});

test("events are followed until the server ends them", async () => {
  const happened = { time: "t", sandbox_id: "box", type: "sandbox.running", payload: { boot_ms: 3 } };
  await serving(
    boxThen(({ query }, response) =>
      query.get("follow") === "1" ? stream(response, event("event", happened)) : json(response, 200, { events: [happened] }),
    ),
    async ({ client }) => {
      const sandbox = await client.sandboxes.get("box");
      const expected = { time: "t", sandboxId: "box", type: "sandbox.running", payload: { boot_ms: 3 } };
      assert.deepEqual(await sandbox.events({ tail: 5 }), [expected]);
      const followed = [];
      for await (const one of sandbox.followEvents()) followed.push(one);
      assert.deepEqual(followed, [expected]);
    },
  );
});

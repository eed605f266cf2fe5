/**
 * Runs the table of behaviour (sdk/behaviour/cases.json) against a real server with real machines.
 *
 * Reads PANDASTACK_API and PANDASTACK_API_KEY; without them everything is skipped, and says so. Verbs, matchers and error kinds
 * are described in sdk/behaviour/README.md.
 */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect, promisify } from "node:util";

import {
  AuthError,
  BadRequestError,
  CodeContext,
  CommandError,
  ConflictError,
  ExploreError,
  NotFoundError,
  PandaStack,
  PandaStackError,
  PermissionDeniedError,
  Process,
  RateLimitError,
  Sandbox,
  SandboxTimeout,
  ServerError,
  type ExecResult,
  type SandboxFilter,
  type TransferProgress,
  type TreeNode,
} from "@pandastack/sdk";

type Json = Record<string, any>;

interface Step {
  do: string;
  on?: string;
  with?: Json;
  as?: string;
  expect?: Json;
  error?: { kind: string; status?: number; code?: string; message?: unknown; stdout?: unknown; stderr?: unknown; text?: unknown };
  within?: number;
}

interface Case {
  name: string;
  template?: string;
  steps: Step[];
}

/** What a step leaves: fields to look at, and the thing itself for later steps. */
interface Outcome {
  fields: Json;
  thing?: unknown;
}

const PATH = resolve(dirname(fileURLToPath(import.meta.url)), "../../../behaviour/cases.json");
// Guests may be emulated, the host busy and the template not there yet.
const CONFIG = { timeoutMs: 300_000, maxCreateRetrySeconds: 900 };

/** `memoryMb` → `memory_mb`, for objects that name things in camelCase. Keys that are data stay. */
function wire(value: unknown): any {
  if (Array.isArray(value)) return value.map(wire);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [
      key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      ["metadata", "payload", "failures"].includes(key) ? held : wire(held),
    ]),
  );
}

const KINDS: Record<string, (error: unknown) => boolean> = {
  auth: (error) => error instanceof AuthError && !(error instanceof PermissionDeniedError),
  permission: (error) => error instanceof PermissionDeniedError,
  bad_request: (error) => error instanceof BadRequestError,
  not_found: (error) => error instanceof NotFoundError,
  conflict: (error) => error instanceof ConflictError,
  rate_limited: (error) => error instanceof RateLimitError,
  server: (error) => error instanceof ServerError,
  timeout: (error) => error instanceof SandboxTimeout,
  command_failed: (error) => error instanceof CommandError,
  explore: (error) => error instanceof ExploreError,
};

class Run {
  readonly #client = new PandaStack(CONFIG);
  readonly #template: string;
  readonly #named = new Map<string, Outcome>();
  readonly #cleanup: (() => Promise<unknown>)[] = [];

  constructor(template: string) {
    this.#template = template;
  }

  async step(step: Step): Promise<void> {
    const end = Date.now() + (step.within ?? 0) * 1000;
    for (;;) {
      try {
        return await this.#once(step);
      } catch (error) {
        if (Date.now() >= end) throw error;
        await new Promise((wake) => setTimeout(wake, 200));
      }
    }
  }

  /** Removes what was made, newest first. That something is gone already is fine. */
  async close(): Promise<void> {
    for (const undo of this.#cleanup.reverse()) {
      await undo().catch((error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
      });
    }
  }

  async #once(step: Step): Promise<void> {
    const given = this.#filled(step.with ?? {}) as Json;
    const verb = this.#verbs[step.do];
    assert.ok(verb, `no verb is called ${step.do}`);
    let outcome: Outcome;
    try {
      outcome = await verb(step, given);
    } catch (error) {
      if (step.error === undefined) throw error;
      return this.#checkError(step.error, error);
    }
    assert.equal(step.error, undefined, `it should have failed: ${JSON.stringify(step.error)}`);
    if (step.as !== undefined) this.#named.set(step.as, outcome);
    for (const [path, expected] of Object.entries(step.expect ?? {})) {
      check(reach(outcome.fields, path), this.#filled(expected), path);
    }
  }

  #checkError(expected: NonNullable<Step["error"]>, error: unknown): void {
    const kind = KINDS[expected.kind];
    assert.ok(kind, `no kind of error is called ${expected.kind}`);
    assert.ok(kind(error), `should be ${expected.kind}, is ${String(error)}`);
    assert.ok(error instanceof PandaStackError);
    if (expected.status !== undefined) assert.equal(error.statusCode, expected.status);
    if (expected.code !== undefined) assert.equal(error.code, expected.code);
    if (expected.message !== undefined) check(error.message, this.#filled(expected.message), "message");
    for (const field of ["stdout", "stderr"] as const) {
      if (expected[field] !== undefined) check((error as SandboxTimeout)[field], this.#filled(expected[field]), field);
    }
    // As consoles print it, and the runtime where it is not caught.
    if (expected.text !== undefined) check(inspect(error), this.#filled(expected.text), "text");
    if (error.statusCode !== undefined) {
      assert.ok(error.requestId, "an error of the server names its request");
      assert.ok(error.code, "an error of the server has a code");
    }
  }

  /** Arguments with what earlier steps left in place of `$name.field`. */
  #filled(value: unknown): unknown {
    if (Array.isArray(value)) return value.map((one) => this.#filled(one));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, held]) => [key, this.#filled(held)]));
    }
    if (typeof value !== "string") return value;
    const whole = /^\$([A-Za-z_][\w.-]*)$/.exec(value);
    // Only what a step named: the shell has variables too.
    if (whole?.[1] !== undefined && this.#isNamed(whole[1])) return this.#look(whole[1]);
    return value.replace(/\$\{([^}]+)\}/g, (text, path: string) => {
      return this.#isNamed(path) ? String(this.#look(path)) : text;
    });
  }

  #isNamed(path: string): boolean {
    return this.#named.has(path.split(".")[0] ?? "");
  }

  #look(path: string): unknown {
    const names = path.split(".");
    // A child of a fork is named `tree.1`.
    for (let parts = names.length - 1; parts >= 1; parts--) {
      const found = this.#named.get(names.slice(0, parts).join("."));
      if (found !== undefined) return reach(found.fields, names.slice(parts).join("."));
    }
    throw new Error(`nothing is called ${path}`);
  }

  #thing<T>(step: Step, type: abstract new (...given: never[]) => T): T {
    const thing = this.#named.get(step.on ?? "")?.thing;
    assert.ok(thing instanceof type, `${step.on} is no ${type.name}`);
    return thing;
  }

  #box(step: Step): Sandbox {
    return this.#thing(step, Sandbox);
  }

  #kept(sandbox: Sandbox): Outcome {
    this.#cleanup.push(() => this.#client.sandboxes.delete(sandbox.id));
    return { fields: wire(sandbox.info), thing: sandbox };
  }

  readonly #verbs: Record<string, (step: Step, given: Json) => Promise<Outcome>> = {
    create: async (_, given) => {
      const template = given["template"] ?? (given["from_snapshot"] === undefined ? this.#template : undefined);
      const { metadata, env, network, persistent, volumes, name, cpu } = given;
      return this.#kept(
        await this.#client.sandboxes.create({
          template,
          metadata,
          env,
          network,
          persistent,
          name,
          cpu,
          memoryMb: given["memory_mb"],
          diskGb: given["disk_gb"],
          ttlSeconds: given["ttl_seconds"],
          fromSnapshot: given["from_snapshot"],
          volumes: volumes?.map((one: Json | string) =>
            typeof one === "string" ? one : { name: one["name"], readOnly: one["read_only"], mount: one["mount"] },
          ),
        }),
      );
    },
    get: async (step, given) => {
      const sandbox = await this.#client.sandboxes.get(given["id"] ?? this.#box(step).id);
      return { fields: wire(sandbox.info), thing: sandbox };
    },
    list: async (_, given) => ({ fields: { ids: (await this.#client.sandbox.list(filter(given))).map(({ id }) => id) } }),
    delete_all: async (_, given) => ({ fields: wire(await this.#client.sandboxes.deleteAll(filter(given))) }),
    tree: async (step) => {
      const tree = await this.#box(step).tree();
      const ids = (node: TreeNode): string[] => [node.id, ...node.children.flatMap(ids)];
      return { fields: { ...wire(tree), ids: ids(tree.tree) } };
    },
    delete: async (step) => {
      await this.#box(step).delete();
      return { fields: {} };
    },
    patch: async (step, { metadata, env, network, name }) => {
      const sandbox = await this.#box(step).update({ metadata, env, network, name });
      return { fields: wire(sandbox.info), thing: sandbox };
    },
    lifecycle: async (step, given) => {
      const sandbox = this.#box(step);
      const { ttl_seconds: ttlSeconds, persistent } = given;
      const change = { ...(ttlSeconds === undefined ? {} : { ttlSeconds }), ...(persistent === undefined ? {} : { persistent }) };
      const asked = Object.keys(change).length > 0;
      return { fields: wire(asked ? await sandbox.setLifecycle(change) : await sandbox.lifecycle()) };
    },
    state: async (step, { to, ...options }) => {
      const sandbox = this.#box(step);
      assert.ok(["pause", "resume", "hibernate", "wake"].includes(to), to);
      // Only waking has an option: `cold`.
      await sandbox[to as "pause" | "resume" | "hibernate" | "wake"](options);
      return { fields: {} };
    },
    exec: async (step, given) => {
      const { cmd, cwd, env, stdin, user, check, timeout_seconds: timeoutSeconds, stream } = given;
      const order: string[] = [];
      const callbacks = stream === true ? { onStdout: note(order, "stdout"), onStderr: note(order, "stderr") } : {};
      const options = { cwd, env, stdin, user, check, timeoutSeconds, ...callbacks };
      const result = await this.#box(step).exec(cmd, options);
      return { fields: { ...ended(result), hint: result.hint, order } };
    },
    write: async (step, { path, text, base64, repeat }) => {
      const once = base64 === undefined ? Buffer.from(text) : Buffer.from(base64, "base64");
      const content = repeat === undefined ? once : Buffer.concat(Array.from({ length: repeat }, () => once));
      return { fields: wire(await this.#box(step).filesystem.write(path, content)) };
    },
    read: async (step, { path }) => {
      const bytes = Buffer.from(await this.#box(step).filesystem.readBytes(path));
      const fields: Json = {
        base64: bytes.toString("base64"),
        bytes: bytes.length,
        sha256: createHash("sha256").update(bytes).digest("hex"),
      };
      if (Buffer.from(bytes.toString("utf8")).equals(bytes)) {
        fields["text"] = bytes.toString("utf8");
        assert.equal(await this.#box(step).filesystem.read(path), fields["text"]);
      }
      return { fields };
    },
    files: async (step, { op, path, to }) => {
      const { filesystem } = this.#box(step);
      if (op === "list") {
        const entries = await filesystem.list(path);
        return { fields: { entries: wire(entries), names: entries.map(({ name }) => name) } };
      }
      if (op === "stat") return { fields: wire(await filesystem.stat(path)) };
      if (op === "exists") return { fields: { exists: await filesystem.exists(path) } };
      if (op === "mkdir") await filesystem.mkdir(path);
      else if (op === "remove") await filesystem.remove(path);
      else if (op === "rename") await filesystem.rename(path, to);
      else assert.fail(`files cannot ${op}`);
      return { fields: {} };
    },
    transfer: async (step, { files, path, links: linked = {} }) => {
      const { filesystem } = this.#box(step);
      const local = await mkdtemp(join(tmpdir(), "pandastack-"));
      try {
        const [up, down] = [join(local, "up"), join(local, "down")];
        for (const [name, text] of Object.entries(files as Record<string, string>)) {
          await mkdir(dirname(join(up, name)), { recursive: true });
          await writeFile(join(up, name), text);
        }
        for (const [name, target] of Object.entries(linked as Record<string, string>)) await symlink(target, join(up, name));
        const last: (TransferProgress | undefined)[] = [undefined, undefined];
        await filesystem.upload(up, path, { onProgress: (one) => (last[0] = one) });
        await filesystem.download(path, down, { onProgress: (one) => (last[1] = one) });
        const back: Record<string, string> = {};
        const links: Record<string, string> = {};
        for (const entry of await readdir(down, { recursive: true, withFileTypes: true })) {
          const file = join(entry.parentPath ?? entry.path, entry.name);
          if (entry.isSymbolicLink()) links[relative(down, file)] = await readlink(file);
          if (!entry.isFile()) continue;
          back[relative(down, file)] = await readFile(file, "utf8");
        }
        const progress = last.every((one) => one !== undefined && one.bytes === one.totalBytes && one.files === one.totalFiles);
        return { fields: { files: back, links, progress } };
      } finally {
        await rm(local, { recursive: true });
      }
    },
    link: async (step, { op, path, text, expires_in_seconds: expiresInSeconds }) => {
      const { files } = this.#box(step);
      const url = await (op === "download" ? files.downloadUrl : files.uploadUrl).call(files, path, { expiresInSeconds });
      const answer = await fetch(url, op === "download" ? {} : { method: "PUT", body: text });
      return { fields: { url, status: answer.status, text: await answer.text() } };
    },
    watch: async (step, { path, recursive, cmd, until }) => {
      const watcher = this.#box(step).files.watch(path, { recursive });
      const changes: string[] = [];
      const moved: Record<string, string | undefined> = {};
      await watcher.ready;
      await this.#box(step).exec(cmd);
      for await (const change of watcher) {
        changes.push(`${change.kind} ${change.path}`);
        if (change.kind === "moved") moved[change.path] = change.to;
        if (changes.at(-1) === until) break;
      }
      return { fields: { changes, moved } };
    },
    tunnel: async (step, { port, send }) => {
      let failure: unknown;
      await using forward = await this.#box(step).portForward(port, { onError: (error) => (failure = error) });
      const local = connect({ port: forward.localPort, host: forward.host, allowHalfOpen: true });
      local.on("error", (error) => (failure ??= error));
      local.end(send);
      const pieces: Buffer[] = [];
      local.on("data", (piece: Buffer) => pieces.push(piece));
      await new Promise((resolve) => local.once("close", resolve));
      assert.ok(pieces.length > 0, `no answer: ${String(failure)}`);
      return { fields: { text: Buffer.concat(pieces).toString("utf8") } };
    },
    terminal: async (step, { rows, cols, input }) => {
      await using terminal = await this.#box(step).terminal({ rows, cols });
      terminal.write(input);
      const shown: Uint8Array[] = [];
      for await (const bytes of terminal) shown.push(bytes);
      return { fields: { output: Buffer.concat(shown).toString("utf8"), exit_code: await terminal.exited } };
    },
    spawn: async (step, { cmd, cwd, env, stdin, tag }) => {
      const process = await this.#box(step).processes.start(cmd, { cwd, env, stdin, tag });
      return { fields: { ...wire(process.info), sandbox: step.on }, thing: process };
    },
    process: async (step, { op, data, close, signal }) => {
      const process = this.#thing(step, Process);
      if (op === "wait") return { fields: ended(await process.wait()) };
      if (op === "attach") {
        const sandbox = this.#named.get(this.#named.get(step.on ?? "")?.fields["sandbox"])?.thing as Sandbox;
        const again = await (await this.#client.sandboxes.get(sandbox.id)).processes.get(process.id);
        return { fields: ended(await again.wait()) };
      }
      if (op === "get") return { fields: wire(await process.refresh()) };
      if (op === "write") {
        await process.write(data);
        if (close === true) await process.closeStdin();
      } else if (op === "signal") await process.signal(signal);
      else assert.fail(`processes cannot ${op}`);
      return { fields: {} };
    },
    context: async (step, { language, cwd }) => {
      const context = await this.#box(step).createCodeContext({ language, cwd });
      this.#cleanup.push(() => context.close());
      return { fields: { id: context.id, language: context.language }, thing: context };
    },
    run: async (step, { code, language, once, stream, timeout_seconds: timeoutSeconds }) => {
      const on = this.#named.get(step.on ?? "")?.thing;
      const order: string[] = [];
      const notes = { onStdout: note(order, "stdout"), onStderr: note(order, "stderr"), onResult: note(order, "result") };
      const options = { timeoutSeconds, ...(stream === true ? notes : {}) };
      const cell =
        on instanceof Sandbox
          ? await on.runCode(code, { ...options, language, once })
          : await this.#thing(step, CodeContext).runCode(code, options);
      const { stdout, stderr, exitCode, error, text, results } = cell;
      return { fields: { stdout, stderr, exit_code: exitCode, error, text, results: results.map(({ data }) => data), order } };
    },
    snapshot: async (step) => {
      const snapshot = await this.#box(step).snapshot();
      this.#cleanup.push(() => this.#client.snapshots.delete(snapshot.id));
      return { fields: wire(snapshot) };
    },
    snapshots: async (_, { op, id, sandbox_id: sandboxId }) => {
      const { snapshots } = this.#client;
      if (op === "list") {
        const found = await snapshots.list(sandboxId === undefined ? {} : { sandboxId });
        return { fields: { ids: found.map((one) => one.id) } };
      }
      if (op === "get") return { fields: wire(await snapshots.get(id)) };
      await snapshots.delete(id);
      return { fields: {} };
    },
    fork: async (step, { count, metadata }) => {
      if (count === undefined) return this.#kept(await this.#box(step).fork({ metadata }));
      const tree = await this.#box(step).forkTree({ count, metadata });
      const children = tree.map((child) => this.#kept(child));
      children.forEach((child, index) => this.#named.set(`${step.as}.${index}`, child));
      return { fields: { children: children.map(({ fields }) => fields), tree_id: tree.treeId } };
    },
    promote: async (step, { cleanup_siblings: cleanupSiblings, tree_id: treeId }) => ({
      fields: wire(await this.#box(step).promote({ cleanupSiblings, treeId })),
    }),
    explore: async (step, { candidates, promote }) => {
      const found = await this.#box(step).explore(candidates, { promoteWinner: promote ?? true });
      this.#kept(found.winner);
      const labels = found.outcomes.map(({ label }) => label);
      return { fields: { winner: found.winnerOutcome.label, reaped: found.reaped.length, labels }, thing: found.winner };
    },
    volume: async (_, { op, name, size_mb: sizeMb }) => {
      const { volumes } = this.#client;
      if (op === "create") {
        const made = await volumes.create({ name, sizeMb });
        // First, so that it goes last: after the sandboxes it is attached to.
        this.#cleanup.unshift(() => volumes.delete(name));
        return { fields: wire(made) };
      }
      if (op === "get") return { fields: wire(await volumes.get(name)) };
      if (op === "resize") return { fields: wire(await volumes.resize(name, sizeMb)) };
      if (op === "list") return { fields: { names: (await volumes.list()).map((one) => one.name) } };
      await volumes.delete(name);
      return { fields: {} };
    },
    token: async (_, { op, label, scope, prefix, expires_in_days: expiresInDays }) => {
      const { tokens } = this.#client;
      if (op === "create") {
        const made = await tokens.create({ label, scope, expiresInDays });
        this.#cleanup.push(() => tokens.revoke(made.prefix));
        return { fields: wire(made) };
      }
      if (op === "list") return { fields: { prefixes: (await tokens.list()).map((one) => one.prefix) } };
      await tokens.revoke(prefix);
      return { fields: {} };
    },
    show: async (step, { what, api_key: apiKey, port, label, network }) => {
      const client = apiKey === undefined ? this.#client : new PandaStack({ ...CONFIG, apiKey });
      if (what === "me") return { fields: wire(await client.me()) };
      if (what === "set_network_default") return { fields: wire(await client.setNetworkDefault(network)) };
      if (what === "templates") return { fields: { names: (await client.templates.list()).map(({ name }) => name) } };
      if (what === "audit") return { fields: { paths: (await client.audit()).map(({ path }) => path) } };
      const sandbox = this.#box(step);
      if (what === "metrics") return { fields: wire(await sandbox.metrics()) };
      if (what === "events") return { fields: { types: (await sandbox.events()).map(({ type }) => type) } };
      if (what === "add_port") await sandbox.ports.add(port, label);
      if (what === "ports" || what === "add_port") {
        return { fields: { ports: (await sandbox.ports.list()).map((one) => one.port) } };
      }
      if (what === "preview") return { fields: wire(await sandbox.createPreview(port)) };
      if (what === "preview_url") {
        // As browsers do, curl knows where names under localhost lead without asking anybody.
        const { stdout } = await promisify(execFile)("curl", ["-sSf", sandbox.previewUrl(port)], { timeout: 60_000 });
        return { fields: { text: stdout } };
      }
      assert.equal(what, "logs");
      const lines: string[] = [];
      for await (const line of sandbox.logs()) lines.push(line);
      return { fields: { text: lines.join("\n") } };
    },
  };
}

/** Takes note of which callback was called, each once per run of equal ones. */
function note(order: string[], name: string): () => void {
  return () => void (order.at(-1) === name || order.push(name));
}

/** A filter from a step's arguments, in which `null` stands for any value. */
function filter({ status, template, name, metadata, parent, root }: Json): SandboxFilter {
  const given = { status, template, name, metadata: metadata && anyValue(metadata), parent, root };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function anyValue(metadata: Record<string, string | null>): Record<string, string | true> {
  return Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, value ?? true]));
}

function ended({ stdout, stderr, exitCode }: ExecResult): Json {
  return { stdout, stderr, exit_code: exitCode };
}

/** What is at a dotted path. Keys that have dots or slashes themselves, such as MIME types, are the rest of it. */
function reach(value: any, path: string): unknown {
  if (path === "" || value === undefined || value === null) return path === "" ? value : undefined;
  if (Object.hasOwn(value, path)) return value[path];
  const dot = path.indexOf(".");
  return dot < 0 ? undefined : reach(value[path.slice(0, dot)], path.slice(dot + 1));
}

function equal(a: unknown, b: unknown): boolean {
  try {
    assert.deepStrictEqual(a, b);
    return true;
  } catch {
    return false;
  }
}

function has(value: any, what: unknown): boolean {
  if (typeof value === "string") return value.includes(String(what));
  return Array.isArray(value) && value.some((one) => equal(one, what));
}

const MATCHERS: Record<string, (value: any, given: any) => boolean> = {
  contains: has,
  lacks: (value, given) => value !== undefined && !has(value, given),
  matches: (value, given) => typeof value === "string" && new RegExp(given).test(value),
  length: (value, given) => (typeof value === "string" ? [...value].length : value?.length) === given,
  at_least: (value, given) => typeof value === "number" && value >= given,
  set: (value, given) => (value !== undefined && value !== null) === given,
  not: (value, given) => !equal(value, given),
};

function check(value: unknown, expected: unknown, path: string): void {
  const shown = () => JSON.stringify(value)?.slice(0, 500);
  if (expected !== null && typeof expected === "object" && !Array.isArray(expected)) {
    const entries = Object.entries(expected);
    const matcher = entries.length === 1 ? MATCHERS[entries[0]?.[0] ?? ""] : undefined;
    if (matcher !== undefined) {
      return assert.ok(matcher(value, entries[0]?.[1]), `${path}: ${shown()} should be ${JSON.stringify(expected)}`);
    }
  }
  assert.ok(equal(value, expected), `${path}: ${shown()} should be ${JSON.stringify(expected)}`);
}

const table = JSON.parse(await readFile(PATH, "utf8")) as { format: number; template: string; cases: Case[] };
const served = process.env["PANDASTACK_API"] && process.env["PANDASTACK_API_KEY"];
if (!served) {
  console.error(
    `SKIPPED: ${table.cases.length} cases of behaviour, because PANDASTACK_API and PANDASTACK_API_KEY do not name a server`,
  );
}

test("the table is of the format that this runner knows", () => assert.equal(table.format, 1));

for (const one of table.cases) {
  test(`behaviour: ${one.name}`, { skip: served ? false : "PANDASTACK_API and PANDASTACK_API_KEY are not set" }, async () => {
    const run = new Run(one.template ?? table.template);
    try {
      for (const [index, step] of one.steps.entries()) {
        await run.step(step).catch((error: unknown) => {
          throw new Error(`step ${index}: ${JSON.stringify(step).slice(0, 300)}: ${String(error)}`, { cause: error });
        });
      }
    } finally {
      await run.close();
    }
  });
}

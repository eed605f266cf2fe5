/** One sandbox, and everything it can do. */

import type { PatchSandbox, SandboxInfo, SandboxTree } from "./additions.js";
import { CodeContext, runCode, type ContextOptions, type Execution, type RunCodeOptions } from "./code.js";
import { CommandStream, exec, type ExecOptions, type ExecResult } from "./exec.js";
import { explore, type Candidate, type ExploreOptions, type ExploreResult } from "./explore.js";
import { NotFoundError, PandaStackError } from "./errors.js";
import { Filesystem } from "./filesystem.js";
import type { Client } from "./client.js";
import type { ClientConfig } from "./config.js";
import type {
  ContextInfo,
  CreateContext,
  ForkAnswer,
  ForkRequest,
  LifecycleInfo,
  PatchLifecycle,
  PromoteRequest,
  PromoteResult,
  SandboxEvent,
  SandboxMetrics,
  SandboxStatus,
  SnapshotInfo,
  StartRequest,
} from "./generated.js";
import { PortForward, type PortForwardOptions } from "./forward.js";
import type {
  EventsOptions,
  ForkTree,
  LogsOptions,
  SandboxChange,
  SandboxForkOptions,
  SandboxForkTreeOptions,
  WakeOptions,
} from "./options.js";
import { Ports, type PreviewOptions } from "./ports.js";
import type { PreviewLink } from "./generated.js";
import { Processes, type Process, type StartOptions } from "./processes.js";
import type { SandboxCreateOptions, SandboxFilter } from "./sandboxes.js";
import { Terminal, type TerminalOptions } from "./terminal.js";
import { at, MOVE_TIMEOUT_MS, type Transport } from "./transport.js";
import { listIn, view, type Whole } from "./view.js";
import { warn } from "./warnings.js";

/**
 * A sandbox. With `await using` it is deleted at the end of its block, unless it is persistent. That it could not be deleted then is
 * a warning, so that the error of the block stays what it is; `delete` fails.
 *
 * @example
 * ```ts
 * await using sandbox = await client.sandboxes.create({ template: "base" });
 * const { stdout } = await sandbox.exec("uname -a");
 * const child = await sandbox.fork();
 * ```
 */
export class Sandbox {
  /** The client it belongs to. */
  readonly client: Client;
  /** Its files. */
  readonly filesystem: Filesystem;
  /** The same as `filesystem`. */
  readonly files: Filesystem;
  /** Its processes that run in the background. */
  readonly processes: Processes;
  /** Its ports. */
  readonly ports: Ports;
  /** Commands, under another name. */
  readonly commands: Commands;
  #info: SandboxInfo;
  readonly #transport: Transport;

  /** @internal Use `client.sandboxes.create` or `Sandbox.create`. */
  constructor(client: Client, transport: Transport, info: SandboxInfo) {
    this.client = client;
    this.#transport = transport;
    this.#info = info;
    this.filesystem = new Filesystem(transport, info.id);
    this.files = this.filesystem;
    this.processes = new Processes(transport, info.id);
    this.ports = new Ports(transport, info.id);
    this.commands = new Commands(this);
    // Consoles need not print whole clients.
    Object.defineProperty(this, "client", { enumerable: false });
    Object.defineProperty(this, "files", { enumerable: false });
    warn(info.warnings);
  }

  /** Makes a sandbox, with a client of its own or one that is there. */
  static async create(options: SandboxCreateOptions = {}, config?: ClientConfig | Client): Promise<Sandbox> {
    return (await clientOf(config)).sandboxes.create(options);
  }

  /** All sandboxes, or those that fit a filter. */
  static async list(config?: ClientConfig | Client, filter?: SandboxFilter): Promise<Sandbox[]> {
    return (await clientOf(config)).sandboxes.list(filter);
  }

  /** One sandbox, by its id, the beginning of it, or its name. */
  static async get(id: string, config?: ClientConfig | Client): Promise<Sandbox> {
    return (await clientOf(config)).sandboxes.get(id);
  }

  /** A sandbox from what was kept of it. Sends no request. */
  static fromInfo(info: Partial<SandboxInfo> & { readonly id: string }, client: Client): Sandbox {
    return client.sandboxes.fromInfo(info);
  }

  /** Its id. */
  get id(): string {
    return this.#info.id;
  }
  /** Its name, when it has one. */
  get name(): string | undefined {
    return this.#info.name;
  }
  /** The sandboxes it comes from, deleted ones included: the oldest first, the nearest last. See `tree` for more. */
  get ancestors(): readonly string[] {
    return this.#info.ancestors ?? [];
  }
  /** What was last heard of it. See `refresh`. */
  get info(): SandboxInfo {
    return this.#info;
  }
  /** What it was doing when last heard of. */
  get status(): SandboxStatus {
    return this.#info.status;
  }
  /** The template it was made from. */
  get template(): string {
    return this.#info.template;
  }
  /** What was written on it. */
  get metadata(): Readonly<Record<string, string>> {
    return this.#info.metadata ?? {};
  }

  /** Asks the server how it is. */
  async refresh(): Promise<this> {
    this.#info = view<SandboxInfo>(await this.#transport.request("GET", this.#path()));
    return this;
  }

  /** Changes name, metadata, variables or network access. */
  async update(change: SandboxChange): Promise<this> {
    const { name, metadata, env, network } = change;
    const body: Whole<PatchSandbox> = { name, metadata, env, network };
    this.#info = view<SandboxInfo>(await this.#transport.request("PATCH", this.#path(), { json: body }));
    warn(this.#info.warnings);
    return this;
  }

  /** The same as `update`. */
  patch(change: SandboxChange): Promise<this> {
    return this.update(change);
  }

  /** Where it comes from, and all that comes from the same: forks, and sandboxes made from snapshots. */
  async tree(): Promise<SandboxTree> {
    return view<SandboxTree>(await this.#transport.request("GET", this.#path("tree")));
  }

  /** Deletes it, with everything in it. */
  async delete(): Promise<void> {
    await this.#transport.request("DELETE", this.#path(), { parseAs: "none", timeoutMs: this.#moveTimeoutMs() });
  }

  /** The same as `delete`. */
  kill(): Promise<void> {
    return this.delete();
  }

  /** Runs a command and waits for its end. A string is a line for the shell; a list is a program and its arguments. */
  exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    return exec(this.#transport, this.id, command, options);
  }

  /** Runs a command and follows it: loop over it for its output, await it for its exit code. */
  execStream(command: string | readonly string[], options: ExecOptions = {}): CommandStream {
    return new CommandStream(this.#transport, this.id, command, options);
  }

  /**
   * Runs code in the sandbox's default context, which keeps its state from call to call. Code that raises is no failure of the call:
   * see `error`.
   *
   * @example
   * ```ts
   * await sandbox.runCode("x = 41");
   * console.log((await sandbox.runCode("x + 1")).text); // 42
   * ```
   */
  runCode(code: string, options?: RunCodeOptions): Promise<Execution>;
  /** @deprecated Runs code once. Use `runCode(code, { language, once: true })`. */
  runCode(code: string, language: string, options?: RunCodeOptions): Promise<Execution>;
  runCode(code: string, given: string | RunCodeOptions = {}, options: RunCodeOptions = {}): Promise<Execution> {
    const whole = typeof given === "string" ? { once: true, ...options, language: given } : given;
    return runCode(this.#transport, this.id, code, whole);
  }

  /** Makes an interpreter that keeps its state from cell to cell. */
  async createCodeContext(options: string | ContextOptions = {}): Promise<CodeContext> {
    const { language, cwd } = typeof options === "string" ? ({ language: options } as ContextOptions) : options;
    const body: Whole<CreateContext> = { language: named(language ?? "python"), cwd };
    const request = { json: body, timeoutMs: this.#moveTimeoutMs() };
    const answer = await this.#transport.request("POST", this.#path("repl", "sessions"), request, "warmup");
    return new CodeContext(this.#transport, this.id, view<ContextInfo>(answer));
  }

  /** Interpreters that were made and not closed. */
  async codeContexts(): Promise<CodeContext[]> {
    const answer = await this.#transport.request("GET", this.#path("repl", "sessions"));
    return view<ContextInfo[]>(listIn(answer, "sessions", "items")).map(
      (info) => new CodeContext(this.#transport, this.id, info),
    );
  }

  /** Opens a login shell in a terminal. */
  terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#transport, this.id, options);
  }

  /** Stops its processors. Its memory stays where it is. */
  async pause(): Promise<void> {
    await this.#move("pause");
  }

  /** Lets it run again after `pause`. */
  async resume(): Promise<void> {
    await this.#move("resume");
  }

  /** Puts it to sleep: memory and disk are kept, nothing is used. Whatever uses it next wakes it. */
  async hibernate(): Promise<void> {
    await this.#move("hibernate");
  }

  /** Wakes it. One that is awake is fine. With `cold` from its disk, without what was in its memory. */
  async wake(options: WakeOptions = {}): Promise<void> {
    if (options.cold !== true) return this.#move("wake");
    const body: Whole<StartRequest> = { cold: true };
    await this.#move("start", body);
  }

  /** How long it may idle. */
  async lifecycle(): Promise<LifecycleInfo> {
    return view<LifecycleInfo>(await this.#transport.request("GET", this.#path("lifecycle")));
  }

  /** Changes how long it may idle, and what then happens. */
  async setLifecycle(change: { ttlSeconds?: number; persistent?: boolean }): Promise<LifecycleInfo> {
    const body: Whole<PatchLifecycle> = { ttl_seconds: change.ttlSeconds, persistent: change.persistent };
    const answer = await this.#transport.request("PATCH", this.#path("lifecycle"), { json: body });
    const lifecycle = view<LifecycleInfo>(answer);
    Object.assign(this.#info, { ttlSeconds: lifecycle.ttlSeconds, persistent: lifecycle.persistent });
    return lifecycle;
  }

  /** After so many seconds of idleness it goes. */
  setTtl(seconds: number): Promise<LifecycleInfo> {
    return this.setLifecycle({ ttlSeconds: seconds });
  }

  /** Whether it sleeps when idle instead of being deleted. */
  setPersistent(persistent: boolean): Promise<LifecycleInfo> {
    return this.setLifecycle({ persistent });
  }

  /** Keeps this instant, memory and disk. New sandboxes start from it with `fromSnapshot`. */
  async snapshot(): Promise<SnapshotInfo> {
    const request = { timeoutMs: this.#moveTimeoutMs() };
    return view<SnapshotInfo>(await this.#transport.request("POST", this.#path("snapshots"), request));
  }

  /** A second sandbox that goes on from this instant, with the same memory, processes and disk. */
  async fork(options: SandboxForkOptions = {}): Promise<Sandbox> {
    const answer = await this.#fork("fork", { metadata: options.metadata }, options);
    const child = answer.sandbox ?? answer.children?.[0];
    if (child === undefined) {
      throw new PandaStackError(answer.errors?.[0]?.err ?? "the server's answer names no child");
    }
    return this.#sibling(child);
  }

  /** Several sandboxes that go on from the same instant. Some may be missing: see `errors`. */
  async forkTree(options: number | SandboxForkTreeOptions): Promise<ForkTree> {
    const given: SandboxForkTreeOptions = typeof options === "number" ? { count: options } : options;
    const answer = await this.#fork("fork-tree", { count: given.count, metadata: given.metadata }, given);
    const children = (answer.children ?? []).map((info) => this.#sibling(info));
    const errors = answer.errors ?? [];
    if (children.length === 0) throw new PandaStackError(errors[0]?.err ?? "no child could be created");
    return Object.defineProperties(children, {
      treeId: { value: answer.treeId ?? children[0]?.metadata["fork_tree_id"] ?? "" },
      snapshotId: { value: answer.snapshotId ?? "" },
      errors: { value: errors },
    }) as ForkTree;
  }

  /** Keeps this child of a fork; with `cleanupSiblings` the others are deleted. */
  async promote(options: { cleanupSiblings?: boolean | undefined; treeId?: string | undefined } = {}): Promise<PromoteResult> {
    const body: Whole<PromoteRequest> = { cleanup_siblings: options.cleanupSiblings ?? false, tree_id: options.treeId };
    const request = { json: body, timeoutMs: this.#moveTimeoutMs() };
    return view<PromoteResult>(await this.#transport.request("POST", this.#path("promote"), request));
  }

  /**
   * Best of N: runs every candidate in a fork of its own, keeps the best and deletes the others.
   *
   * @example
   * ```ts
   * const { winner, winnerOutcome } = await sandbox.explore(
   *   ["python3 solve.py --greedy", "python3 solve.py --exact"],
   *   { scoreFn: (_, outcome) => Number(outcome.stdoutTail) },
   * );
   * ```
   */
  explore(candidates: readonly (Candidate | string)[], options: ExploreOptions = {}): Promise<ExploreResult> {
    return explore(this, candidates, options);
  }

  /** What it wrote to its console, line by line. */
  async *logs(options: LogsOptions = {}): AsyncGenerator<string, void, undefined> {
    const { follow, stream, tail, signal } = options;
    const query = { follow: follow === true ? 1 : undefined, stream, tail };
    if (follow === true) {
      for await (const { data } of this.#transport.events("GET", this.#path("logs"), { query, signal })) {
        const { line } = JSON.parse(data) as { line?: string };
        if (line !== undefined) yield line.replace(/\r?\n$/, "");
      }
      return;
    }
    const headers = { accept: "text/plain" };
    const text = await this.#transport.request<string>("GET", this.#path("logs"), { query, headers, signal, parseAs: "text" });
    const lines = text.split(/\r?\n/);
    if (lines.at(-1) === "") lines.pop();
    yield* lines;
  }

  /** What happened to it, oldest first. */
  async events(options: EventsOptions = {}): Promise<SandboxEvent[]> {
    const { tail, signal } = options;
    const answer = await this.#transport.request("GET", this.#path("events"), { query: { tail }, signal });
    return view<SandboxEvent[]>(listIn(answer, "events"));
  }

  /** What happened to it, and what happens, until it is deleted. */
  async *followEvents(options: EventsOptions = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    const { tail, signal } = options;
    const query = { tail, follow: 1 };
    for await (const { event, data } of this.#transport.events("GET", this.#path("events"), { query, signal })) {
      if (event === "event") yield view<SandboxEvent>(JSON.parse(data));
    }
  }

  /** What its machine costs its host, and what its guest sees. */
  async metrics(): Promise<SandboxMetrics> {
    return view<SandboxMetrics>(await this.#transport.request("GET", this.#path("metrics")));
  }

  /**
   * Where a port is reached without a key, when the server serves previews by host name. The sandbox's id is the secret. A server
   * on this host has them under `localhost`, which browsers and curl find by themselves. For a link that ends, and that works on
   * every server and with every program, see `createPreview`.
   */
  previewUrl(port: number, scheme: "http" | "https" = this.client.previewScheme): string {
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw new RangeError(`${port} is no port`);
    return `${scheme}://${port}-${this.id}.${this.client.previewSuffix}`;
  }

  /** The preview addresses of all its ports. */
  async previewUrls(): Promise<Record<number, string>> {
    return Object.fromEntries((await this.ports.list()).map(({ port }) => [port, this.previewUrl(port)]));
  }

  /** Makes a link to a port that works without a key, for a while. */
  createPreview(port: number, options: PreviewOptions = {}): Promise<PreviewLink> {
    return this.ports.preview(port, options);
  }

  /**
   * Listens on this machine and passes every connection on to a port of the sandbox, whatever it speaks. In Node.js, Bun and Deno.
   *
   * @example
   * ```ts
   * await using forward = await sandbox.portForward(5432);
   * console.log(`psql -h 127.0.0.1 -p ${forward.localPort}`);
   * ```
   */
  portForward(port: number, options: PortForwardOptions = {}): Promise<PortForward> {
    return PortForward.open(this.#transport, this.id, port, options);
  }

  /** A request to a port of the sandbox, through the server. */
  fetch(port: number, path = "/", init: RequestInit = {}): Promise<Response> {
    return this.ports.fetch(port, path, init);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#info.persistent) return;
    try {
      await this.delete();
    } catch (error) {
      // What is thrown here would take the place of the error of the block, and whether there is one cannot be seen.
      if (!(error instanceof NotFoundError)) warn([`sandbox ${this.id} was not deleted: ${String(error)}`]);
    }
  }

  async #fork(verb: "fork" | "fork-tree", body: ForkRequest, options: SandboxForkOptions): Promise<ForkAnswer> {
    const { signal, onProgress, maxCreateWaitSeconds } = options;
    const request = { json: body, timeoutMs: this.#moveTimeoutMs(), signal, wait: { onProgress, maxCreateWaitSeconds } };
    const answer = await this.#transport.request("POST", this.#path(verb), request, "capacity");
    return view<ForkAnswer>(answer);
  }

  async #move(verb: string, json?: object): Promise<void> {
    await this.#transport.request("POST", this.#path(verb), { json, parseAs: "none", timeoutMs: this.#moveTimeoutMs() });
  }

  #sibling(info: SandboxInfo): Sandbox {
    return new Sandbox(this.client, this.#transport, info);
  }

  #moveTimeoutMs(): number {
    return Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS);
  }

  #path(...rest: string[]): string {
    return at("sandboxes", this.id, ...rest);
  }
}

/** Commands of a sandbox, as some programs call them. */
export class Commands {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** The same as `sandbox.exec`. */
  run(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    return this.#sandbox.exec(command, options);
  }

  /** The same as `sandbox.processes.start`. */
  start(command: string | readonly string[], options: StartOptions = {}): Promise<Process> {
    return this.#sandbox.processes.start(command, options);
  }
}

function named(language: string): string {
  return ["py", "python3"].includes(language) ? "python" : language;
}

async function clientOf(config: ClientConfig | Client | undefined): Promise<Client> {
  // Here, because clients need sandboxes and sandboxes clients.
  const { PandaStack } = await import("./client.js");
  return config instanceof PandaStack ? config : new PandaStack(config as ClientConfig | undefined);
}

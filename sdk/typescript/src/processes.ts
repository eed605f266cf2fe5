/** Processes that outlive the request that started them. */

import { collect, outputEvents, type ExecResult, type OutputEvent } from "./exec.js";
import { NetworkError, NotFoundError, PandaStackError } from "./errors.js";
import type { ProcessInfo, ProcessInput, ProcessSignal, SignalName, StartProcess } from "./generated.js";
import { at, pause, type Transport } from "./transport.js";
import { listIn, view, type Whole } from "./view.js";

/** How a process is started. */
export interface StartOptions {
  /** A name of the caller's own, to find it again by. */
  tag?: string | undefined;
  /** Working directory; the user's home when absent. */
  cwd?: string | undefined;
  /** Variables on top of the sandbox's own. */
  env?: Record<string, string> | undefined;
  /** The user who runs it; root when absent. */
  user?: string | undefined;
  /** Whether it can be written to. */
  stdin?: boolean | undefined;
  /** After this long it is killed, with everything it started. */
  timeoutSeconds?: number | undefined;
  /** Ends the request. */
  signal?: AbortSignal | undefined;
}

/** From where on output is read: bytes since the process started. */
export interface OutputOptions {
  stdoutOffset?: number | undefined;
  stderrOffset?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** How often a broken stream is taken up again before giving up; output in between starts the count anew. */
const ATTEMPTS_MAX = 5;
const ATTEMPT_DELAY_MS = 200;

/**
 * A process of a sandbox.
 *
 * @example
 * ```ts
 * const server = await sandbox.processes.start("python3 -m http.server 8000", { tag: "web" });
 * // Later, or in another program:
 * const again = await sandbox.processes.find("web");
 * for await (const event of again.output()) console.log(event);
 * ```
 */
export class Process {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  #info: ProcessInfo;

  /** @internal */
  constructor(transport: Transport, sandboxId: string, info: ProcessInfo) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
    this.#info = info;
  }

  /** Names it as long as the sandbox lives. */
  get id(): number {
    return this.#info.id;
  }

  /** Its pid in the guest. */
  get pid(): number {
    return this.#info.pid;
  }

  /** What was last heard of it. */
  get info(): ProcessInfo {
    return this.#info;
  }

  /** The caller's name for it. */
  get tag(): string | undefined {
    return this.#info.tag;
  }

  /** Asks how it is. */
  async refresh(): Promise<ProcessInfo> {
    this.#info = view<ProcessInfo>(await this.#transport.request("GET", this.#path()));
    return this.#info;
  }

  /**
   * Follows its output from an offset on, then gives its exit code. A connection that breaks is made again where it broke; a
   * process that ended long ago still tells what the sandbox holds of its output.
   */
  async *output(options: OutputOptions = {}): AsyncGenerator<OutputEvent, void, undefined> {
    const encoder = new TextEncoder();
    const offset = { stdout: options.stdoutOffset ?? 0, stderr: options.stderrOffset ?? 0 };
    let attempts = 0;
    for (;;) {
      const stream = this.#transport.events("GET", this.#path("output"), {
        query: { stdout_offset: offset.stdout, stderr_offset: offset.stderr },
        signal: options.signal,
      });
      try {
        for await (const event of outputEvents(stream)) {
          if (event.type !== "exit") {
            offset[event.type] += encoder.encode(event.text).length;
            attempts = 0;
          }
          yield event;
        }
        return;
      } catch (error) {
        // That of an interruption is one too.
        if (!(error instanceof NetworkError) || ++attempts > ATTEMPTS_MAX) throw error;
        await pause(ATTEMPT_DELAY_MS * 2 ** attempts, options.signal);
      }
    }
  }

  /** Waits for its end, and gives everything it wrote that the sandbox still holds. */
  async wait(options: OutputOptions = {}): Promise<ExecResult> {
    return collect(this.output(options), performance.now());
  }

  /** Types into it. It must have been started with `stdin: true`. */
  async write(data: string): Promise<void> {
    await this.#input({ data });
  }

  /** Ends its standard input. */
  async closeStdin(): Promise<void> {
    await this.#input({ data: "", close: true });
  }

  /** Signals it and everything it started; SIGTERM when none is named. */
  async signal(signal: SignalName = "SIGTERM"): Promise<void> {
    const body: ProcessSignal = { signal };
    await this.#transport.request("POST", this.#path("signal"), { json: body, parseAs: "none" });
  }

  /** Kills it and everything it started. */
  async kill(): Promise<void> {
    await this.signal("SIGKILL");
  }

  async #input(body: ProcessInput): Promise<void> {
    await this.#transport.request("POST", this.#path("input"), { json: body, parseAs: "none" });
  }

  #path(...rest: string[]): string {
    return at("sandboxes", this.#sandboxId, "processes", this.id, ...rest);
  }
}

/** Processes of a sandbox. */
export class Processes {
  readonly #transport: Transport;
  readonly #sandboxId: string;

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
  }

  /** Starts a process and does not wait for it. A string is a line for the shell; a list is a program and its arguments. */
  async start(command: string | readonly string[], options: StartOptions = {}): Promise<Process> {
    const { tag, cwd, env, user, stdin, timeoutSeconds, signal } = options;
    const what = typeof command === "string" ? { cmd: command, argv: undefined } : { cmd: undefined, argv: [...command] };
    const body: Whole<StartProcess> = { ...what, tag, cwd, env, user, stdin, timeout_seconds: timeoutSeconds };
    const path = at("sandboxes", this.#sandboxId, "processes");
    return this.#made(await this.#transport.request("POST", path, { json: body, signal }, "warmup"));
  }

  /** Those that run, and some that ended. */
  async list(): Promise<Process[]> {
    const answer = await this.#transport.request("GET", at("sandboxes", this.#sandboxId, "processes"));
    return listIn(answer, "processes", "items").map((one) => this.#made(one));
  }

  /** The one with this id: to follow it again, from this program or another. */
  async get(id: number): Promise<Process> {
    return this.#made(await this.#transport.request("GET", at("sandboxes", this.#sandboxId, "processes", id)));
  }

  /** The newest one with this tag. */
  async find(tag: string): Promise<Process> {
    const tagged = (await this.list()).filter((one) => one.tag === tag).sort((a, b) => b.id - a.id);
    if (tagged[0] === undefined) throw new NotFoundError(`no process is tagged ${JSON.stringify(tag)}`);
    return tagged[0];
  }

  #made(answer: unknown): Process {
    const info = view<ProcessInfo>(answer);
    if (typeof info?.id !== "number") throw new PandaStackError("the server's answer names no process");
    return new Process(this.#transport, this.#sandboxId, info);
  }
}

/** Code contexts: interpreters that keep their state from cell to cell. */

import type { CellAnswer, RunCell } from "./additions.js";
import {
  errorNamed,
  ExecInterrupted,
  timeoutOf,
  toldTimeout,
  type ToldError,
} from "./errors.js";
import { interruptible } from "./exec.js";
import type { ContextInfo, RunOnce, RunOnceAnswer } from "./generated.js";
import type { ServerEvent } from "./sse.js";
import { at, MOVE_TIMEOUT_MS, type Transport } from "./transport.js";
import { view, type Whole } from "./view.js";

/** Asked for by notebooks that run JavaScript. */
const JUPYTER_DISPLAY = Symbol.for("Jupyter.display");

const TIMEOUT_SECONDS = 30;
const MARGIN_SECONDS = 60;
/** Longer cells are followed: connections on which nothing happens for minutes do not live everywhere. */
const WAIT_SECONDS_MAX = 240;
/** Names the context that every sandbox has: it is made at its first use. */
const DEFAULT_CONTEXT = "default";

/** Something a cell showed: one value in every form it has. */
export class Result {
  /** The value by MIME type. Images are base64. */
  readonly data: Readonly<Record<string, string>>;

  constructor(data: Record<string, string>) {
    this.data = data;
  }

  /** A PNG image in base64. */
  get png(): string | undefined {
    return this.data["image/png"];
  }
  /** A JPEG image in base64. */
  get jpeg(): string | undefined {
    return this.data["image/jpeg"];
  }
  /** An SVG image. */
  get svg(): string | undefined {
    return this.data["image/svg+xml"];
  }
  /** HTML, such as the table of a data frame. */
  get html(): string | undefined {
    return this.data["text/html"];
  }
  /** Markdown. */
  get markdown(): string | undefined {
    return this.data["text/markdown"];
  }
  /** Text, as the interpreter would print the value. */
  get text(): string | undefined {
    return this.data["text/plain"];
  }
  /** A value of JSON. */
  get json(): unknown {
    const text = this.data["application/json"];
    if (text === undefined) return undefined;
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  /** The picture, in whichever form there is one: PNG, JPEG, SVG. */
  get chart(): string | undefined {
    return this.png ?? this.jpeg ?? this.svg;
  }
  /** Its MIME types. */
  get formats(): string[] {
    return Object.keys(this.data);
  }

  /** How notebooks show it. */
  [JUPYTER_DISPLAY](): Record<string, string> {
    return { ...this.data };
  }
}

/** What a cell did. */
export class Execution {
  /** What it showed, in order. */
  readonly results: Result[];
  /** What it wrote. */
  readonly stdout: string;
  /** What it wrote to standard error. */
  readonly stderr: string;
  /** The traceback, when it raised. */
  readonly error: string | undefined;
  /** 0, or 1 when it raised. */
  readonly exitCode: number;
  /** How long it took. */
  readonly durationMs: number;
  /** The context it ran in; absent when it ran once. */
  readonly contextId: string | undefined;
  /** Whether output beyond the server's bound was dropped. */
  readonly truncated: boolean = false;

  /** @internal */
  constructor(answer: Partial<CellAnswer>) {
    this.results = (answer.results ?? []).map((one) => new Result(bundle(one)));
    this.stdout = answer.stdout ?? "";
    this.stderr = answer.stderr ?? "";
    this.error = answer.error;
    this.exitCode = answer.exit ?? answer.exitCode ?? 0;
    this.durationMs = answer.durationMs ?? 0;
    this.contextId = answer.contextId;
  }

  /** @deprecated Use `exitCode`. */
  get exit_code(): number {
    return this.exitCode;
  }
  /** @deprecated Use `durationMs`. */
  get duration_ms(): number {
    return this.durationMs;
  }
  /** The text of the last result that has one. */
  get text(): string | undefined {
    return [...this.results].reverse().find(({ text }) => text !== undefined)?.text;
  }
  /** The first PNG image, in base64. */
  get png(): string | undefined {
    return this.results.find(({ png }) => png !== undefined)?.png;
  }

  /** How notebooks show it: as its last result. */
  [JUPYTER_DISPLAY](): Record<string, string> {
    const last = this.results.at(-1);
    return last === undefined ? { "text/plain": this.error ?? this.stdout } : { ...last.data };
  }
}

/** A result as a bundle of MIME types, also where a server gives them one by one. */
function bundle(result: Record<string, string>): Record<string, string> {
  const { type, data } = result;
  return type !== undefined && data !== undefined ? { [type]: data } : result;
}

/** How a context is made. */
export interface ContextOptions {
  /** Its language; Python when absent. */
  language?: string | undefined;
  /** Working directory. */
  cwd?: string | undefined;
}

/** How a cell is run. */
export interface RunOptions {
  /** After this long it is interrupted, and `SandboxTimeout` is thrown, with its output until then; 30 seconds when absent. */
  timeoutSeconds?: number | undefined;
  /** Called with output as it comes. */
  onStdout?: ((chunk: string) => void) | undefined;
  /** Called with what goes to standard error as it comes. */
  onStderr?: ((chunk: string) => void) | undefined;
  /** Called with each result as it is shown. */
  onResult?: ((result: Result) => void) | undefined;
  /** Ends the waiting. The cell itself goes on. */
  signal?: AbortSignal | undefined;
}

/** How code is run in a sandbox. */
export interface RunCodeOptions extends RunOptions {
  /** Its language: `python`, `javascript`, `typescript`, `bash`; or `ruby`, which runs once. Python when absent. */
  language?: string | undefined;
  /** The context to run it in; the sandbox's default one of that language when absent. */
  context?: CodeContext | string | undefined;
  /** Run it in an interpreter of its own, which keeps nothing and tells what it wrote at its end. */
  once?: boolean | undefined;
}

/** Runs a cell in a context. */
async function runCell(
  transport: Transport,
  sandboxId: string,
  contextId: string,
  code: string,
  options: RunOptions & { language?: string | undefined },
): Promise<Execution> {
  const { timeoutSeconds = TIMEOUT_SECONDS, onStdout, onStderr, onResult, signal, language } = options;
  const body: Whole<RunCell> = {
    code,
    timeout_ms: options.timeoutSeconds === undefined ? undefined : Math.round(timeoutSeconds * 1000),
    language,
  };
  const path = at("sandboxes", sandboxId, "repl", "sessions", contextId, "run");
  const follow = onStdout !== undefined || onStderr !== undefined || onResult !== undefined;
  try {
    if (follow || timeoutSeconds > WAIT_SECONDS_MAX) {
      // The interpreter is started first, and headers come with it.
      const request = { json: body, timeoutMs: Math.max(transport.settings.timeoutMs, MOVE_TIMEOUT_MS), signal };
      return await followCell(transport.events("POST", `${path}/stream`, request, "warmup"), options);
    }
    const timeoutMs = Math.max(timeoutSeconds * 1000 + MOVE_TIMEOUT_MS, transport.settings.timeoutMs);
    return new Execution(view<CellAnswer>(await transport.request("POST", path, { json: body, timeoutMs, signal }, "warmup")));
  } catch (error) {
    throw timeoutOf(error);
  }
}

/** Reads the events of a cell to its end. */
async function followCell(events: AsyncIterable<ServerEvent>, options: RunOptions): Promise<Execution> {
  const { onStdout, onStderr, onResult } = options;
  const [stdout, stderr, results]: [string[], string[], Record<string, string>[]] = [[], [], []];
  const written = () => ({ stdout: stdout.join(""), stderr: stderr.join(""), results });
  for await (const { event, data } of interruptible(events)) {
    if (event === "stdout" || event === "stderr") {
      const { chunk = "" } = JSON.parse(data) as { chunk?: string };
      (event === "stdout" ? stdout : stderr).push(chunk);
      (event === "stdout" ? onStdout : onStderr)?.(chunk);
    } else if (event === "result") {
      const shown = bundle(JSON.parse(data) as Record<string, string>);
      results.push(shown);
      onResult?.(new Result(shown));
    } else if (event === "exit") {
      return new Execution({ ...view<CellAnswer>(JSON.parse(data)), ...written() });
    } else if (event === "error") {
      const told = JSON.parse(data) as ToldError;
      const timeout = toldTimeout(told);
      if (timeout !== undefined) throw timeout.followed(written());
      throw errorNamed(told);
    }
  }
  throw new ExecInterrupted("the stream ended before the cell did");
}

/** Runs code in an interpreter of its own. */
async function runOnce(transport: Transport, sandboxId: string, code: string, options: RunCodeOptions): Promise<Execution> {
  const { timeoutSeconds = TIMEOUT_SECONDS, language = "python", onStdout, onStderr, onResult, signal } = options;
  if (onStdout ?? onStderr ?? onResult) throw new TypeError("code that runs once gives its output at its end: there is nothing to call back");
  const body: Whole<RunOnce> = {
    language: language === "shell" ? "sh" : language,
    code,
    timeout_ms: Math.round(timeoutSeconds * 1000),
  };
  const begun = performance.now();
  try {
    const timeoutMs = Math.max(transport.settings.timeoutMs, (timeoutSeconds + MARGIN_SECONDS) * 1000);
    const answer = await transport.request("POST", at("sandboxes", sandboxId, "repl"), { json: body, timeoutMs, signal }, "warmup");
    const { stdout, stderr, exitCode } = view<RunOnceAnswer>(answer);
    return new Execution({ stdout, stderr, exitCode, durationMs: Math.round(performance.now() - begun) });
  } catch (error) {
    throw timeoutOf(error);
  }
}

/** Runs code where the options say: in a context, in the sandbox's default one, or once. */
export async function runCode(
  transport: Transport,
  sandboxId: string,
  code: string,
  options: RunCodeOptions = {},
): Promise<Execution> {
  const { context, language } = options;
  const once = options.once ?? (context === undefined && ["ruby", "rb"].includes(language ?? ""));
  if (once) {
    if (context !== undefined) throw new TypeError("code runs in a context or once, not both");
    return runOnce(transport, sandboxId, code, options);
  }
  if (context === undefined) return runCell(transport, sandboxId, DEFAULT_CONTEXT, code, options);
  if (language !== undefined) throw new TypeError("a context has a language already");
  return runCell(transport, sandboxId, typeof context === "string" ? context : context.id, code, options);
}

/**
 * An interpreter that keeps its state from cell to cell, also while its sandbox sleeps.
 *
 * @example
 * ```ts
 * await using context = await sandbox.createCodeContext();
 * await context.runCode("x = 41");
 * console.log((await context.runCode("x + 1")).text); // 42
 * ```
 */
export class CodeContext {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  /** Its id. */
  readonly id: string;
  /** Its language. */
  readonly language: string;

  /** @internal */
  constructor(transport: Transport, sandboxId: string, info: ContextInfo) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
    this.id = info.id;
    this.language = info.language;
  }

  /** Runs a cell. One that raises is no failure of the call: see `error`. */
  async runCode(code: string, options: RunOptions = {}): Promise<Execution> {
    const { timeoutSeconds, onStdout, onStderr, onResult, signal } = options;
    return runCell(this.#transport, this.#sandboxId, this.id, code, { timeoutSeconds, onStdout, onStderr, onResult, signal });
  }

  /** The same as `runCode`. */
  run(code: string, options: RunOptions = {}): Promise<Execution> {
    return this.runCode(code, options);
  }

  /** Ends the interpreter. One that is gone already is fine. */
  async close(): Promise<void> {
    const path = at("sandboxes", this.#sandboxId, "repl", "sessions", this.id);
    await this.#transport.request("DELETE", path, { parseAs: "none", noRetry: true }).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

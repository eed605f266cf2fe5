/** Code contexts: interpreters that keep their state from cell to cell. */

import { timeoutOf } from "./errors.js";
import type { CellAnswer, ContextInfo, RunCell } from "./generated.js";
import { at, type Transport } from "./transport.js";
import { view } from "./view.js";

/** Asked for by notebooks that run JavaScript. */
const JUPYTER_DISPLAY = Symbol.for("Jupyter.display");

const TIMEOUT_SECONDS = 30;
const MARGIN_SECONDS = 60;

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

  /** @internal */
  constructor(answer: CellAnswer) {
    this.results = (answer.results ?? []).map((one) => new Result(bundle(one)));
    this.stdout = answer.stdout ?? "";
    this.stderr = answer.stderr ?? "";
    this.error = answer.error;
    this.exitCode = answer.exit ?? answer.exitCode ?? 0;
    this.durationMs = answer.durationMs ?? 0;
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
  /**
   * After this long it is interrupted, and `SandboxTimeout` is thrown; 30 seconds when absent. The `fetch` of Node gives up on
   * answers that take five minutes: for longer cells give the client another one.
   */
  timeoutSeconds?: number | undefined;
  /** Ends the waiting. */
  signal?: AbortSignal | undefined;
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
    const { timeoutSeconds, signal } = options;
    const body: RunCell = { code };
    if (timeoutSeconds !== undefined) body.timeout_ms = Math.round(timeoutSeconds * 1000);
    const timeoutMs = ((timeoutSeconds ?? TIMEOUT_SECONDS) + MARGIN_SECONDS) * 1000;
    try {
      const path = at("sandboxes", this.#sandboxId, "repl", "sessions", this.id, "run");
      const answer = await this.#transport.request("POST", path, {
        json: body,
        timeoutMs: Math.max(timeoutMs, this.#transport.settings.timeoutMs),
        signal,
      });
      return new Execution(view<CellAnswer>(answer));
    } catch (error) {
      throw timeoutOf(error);
    }
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

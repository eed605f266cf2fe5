/** Commands: waited for, or followed while they run. */

import type { ExecRequest } from "./additions.js";
import {
  CommandError,
  ExecInterrupted,
  NetworkError,
  PandaStackError,
  SandboxTimeout,
  timeoutOf,
  toldTimeout,
  type ToldError,
} from "./errors.js";
import { hintHere } from "./hints.js";
import { at, STREAM_BROKEN, type Retry, type Transport } from "./transport.js";
import { view, type Whole } from "./view.js";

/** How a command is run. */
export interface ExecOptions {
  /** After this long it is killed, with everything it started, and `SandboxTimeout` is thrown, with its output until then. */
  timeoutSeconds?: number | undefined;
  /** Throw `CommandError` when it exits with another code than 0. */
  check?: boolean | undefined;
  /** Working directory; the user's home when absent. */
  cwd?: string | undefined;
  /** Variables on top of the sandbox's own. */
  env?: Record<string, string> | undefined;
  /** What it reads from standard input. */
  stdin?: string | undefined;
  /** The user who runs it; root when absent. */
  user?: string | undefined;
  /** Called with output as it comes. */
  onStdout?: ((chunk: string) => void) | undefined;
  /** Called with what goes to standard error as it comes. */
  onStderr?: ((chunk: string) => void) | undefined;
  /** Ends the waiting. The command itself goes on: give it `timeoutSeconds`, or start it with `processes.start`. */
  signal?: AbortSignal | undefined;
}

/** The same, for `execStream`. */
export type ExecStreamCallbacks = ExecOptions;

/** How a command ended. */
export interface ExecResult {
  /** What it wrote, with U+FFFD for bytes that are not UTF-8. */
  readonly stdout: string;
  /** What it wrote to standard error. */
  readonly stderr: string;
  /** Its exit code; 128 + n when signal n ended it. */
  readonly exitCode: number;
  /** @deprecated Use `exitCode`. */
  readonly exit_code: number;
  /** How long it ran. */
  readonly durationMs: number;
  /** @deprecated Use `durationMs`. */
  readonly duration_ms: number;
  /** Names the command in `processes`, when it was not streamed. */
  readonly processId?: number;
  /** Whether output beyond the server's bound was dropped. */
  readonly truncated: boolean;
  /** What may help, where a command failed for want of a network that the sandbox does not have. */
  readonly hint?: string;
}

/** Something a followed command did. */
export type OutputEvent =
  | { readonly type: "stdout" | "stderr"; readonly text: string }
  | { readonly type: "exit"; readonly exitCode: number; readonly hint?: string };

/** Longer commands are followed: connections on which nothing happens for minutes do not live everywhere. */
const WAIT_SECONDS_MAX = 240;
const INTERRUPTED_HINT = "the command may still run: see sandbox.processes.list()";
/** What the server needs on top of a command's own time. */
const MARGIN_SECONDS = 60;

/** A command as people would type it. */
function commandLine(command: string | readonly string[]): string {
  return typeof command === "string" ? command : command.map(quote).join(" ");
}

/** A word that the shell takes as it is. */
function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function requestOf(cmd: string | readonly string[], options: ExecOptions): Whole<ExecRequest> {
  const { timeoutSeconds, cwd, env, stdin, user } = options;
  return { cmd, timeout_seconds: timeoutSeconds, cwd, env, stdin, user };
}

/** Runs a command and waits for its end. */
export async function exec(
  transport: Transport,
  sandboxId: string,
  command: string | readonly string[],
  options: ExecOptions = {},
): Promise<ExecResult> {
  const { timeoutSeconds, onStdout, onStderr, signal } = options;
  const follow = onStdout !== undefined || onStderr !== undefined || (timeoutSeconds ?? Infinity) > WAIT_SECONDS_MAX;
  let result: ExecResult;
  if (follow) {
    result = await new CommandStream(transport, sandboxId, command, options, "warmup").result();
  } else {
    try {
      const answer = await transport.request<{ hint?: string | null }>(
        "POST",
        at("sandboxes", sandboxId, "exec"),
        {
          json: requestOf(command, options),
          timeoutMs: Math.max(transport.settings.timeoutMs, ((timeoutSeconds ?? 0) + MARGIN_SECONDS) * 1000),
          signal,
        },
        "warmup",
      );
      const { hint, ...said } = answer;
      result = view<ExecResult>(hint ? { ...said, hint: hintHere(hint) } : said);
    } catch (error) {
      throw timeoutOf(error);
    }
  }
  if (!follow && options.check === true && result.exitCode !== 0) throw commandError(command, result);
  return result;
}

function commandError(command: string | readonly string[], { exitCode, stdout, stderr, hint }: ExecResult): CommandError {
  const said = (stderr.trim() || stdout.trim()).slice(-500);
  const cmd = commandLine(command);
  const shown = cmd.length > 200 ? `${cmd.slice(0, 200)}…` : cmd;
  const text = `\`${shown}\` exited with ${exitCode}${said ? `: ${said}` : ""}${hint ? `\nhint: ${hint}` : ""}`;
  return new CommandError(text, exitCode, stdout, stderr, hint);
}

/** The events of a command's stream; throws when it does not end as commands do. */
export async function* outputEvents(
  events: AsyncIterable<{ event: string; data: string }>,
): AsyncGenerator<OutputEvent, void, undefined> {
  for await (const { event, data } of interruptible(events)) {
    if (event !== "stdout" && event !== "stderr" && event !== "exit" && event !== "error") continue;
    const said = JSON.parse(data) as ToldError & { chunk?: string; exit_code?: number };
    if (event === "exit") {
      yield { type: "exit", exitCode: said.exit_code ?? 0, ...(said.hint ? { hint: hintHere(said.hint) } : {}) };
      return;
    }
    if (event === "error") {
      const { error: message = "the command could not be followed", code, hint } = said;
      throw toldTimeout(said) ?? new ExecInterrupted(message, { code, hint: hintHere(hint) });
    }
    yield { type: event, text: said.chunk ?? "" };
  }
  throw new ExecInterrupted("the stream ended before the command did", { hint: INTERRUPTED_HINT });
}

/** A stream that breaks once it has begun interrupts its command. */
export async function* interruptible<T>(events: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
  try {
    yield* events;
  } catch (error) {
    if (!(error instanceof NetworkError) || error.code !== STREAM_BROKEN) throw error;
    throw new ExecInterrupted(error.message, { hint: INTERRUPTED_HINT, code: error.code, cause: error });
  }
}

/**
 * A command that is followed while it runs. It starts when it is first looped over or awaited, once.
 *
 * Looping gives its output as it comes, then its exit code; awaiting gives its exit code.
 *
 * @example
 * ```ts
 * for await (const event of sandbox.execStream("make test")) {
 *   if (event.type === "stdout") process.stdout.write(event.text);
 * }
 * const exitCode = await sandbox.execStream("make test", { onStdout: (text) => process.stdout.write(text) });
 * ```
 */
export class CommandStream implements AsyncIterable<OutputEvent>, Promise<number> {
  readonly [Symbol.toStringTag] = "CommandStream";
  readonly #transport: Transport;
  readonly #sandboxId: string;
  readonly #command: string | readonly string[];
  readonly #options: ExecOptions;
  readonly #retry: Retry;
  #started = false;
  #result: Promise<ExecResult> | undefined;

  /** @internal */
  constructor(
    transport: Transport,
    sandboxId: string,
    command: string | readonly string[],
    options: ExecOptions = {},
    retry: Retry = "echo",
  ) {
    this.#retry = retry;
    this.#transport = transport;
    this.#sandboxId = sandboxId;
    this.#command = typeof command === "string" ? command : [...command];
    this.#options = options;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<OutputEvent, void, undefined> {
    if (this.#started) throw new PandaStackError("a command's stream can be read once");
    this.#started = true;
    const { onStdout, onStderr, signal } = this.#options;
    const path = at("sandboxes", this.#sandboxId, "exec", "stream");
    const request = { json: requestOf(this.#command, this.#options), signal };
    try {
      for await (const event of outputEvents(this.#transport.events("POST", path, request, this.#retry))) {
        if (event.type === "stdout") onStdout?.(event.text);
        if (event.type === "stderr") onStderr?.(event.text);
        yield event;
      }
    } catch (error) {
      throw timeoutOf(error);
    }
  }

  /** Reads the stream to its end and gives everything at once. */
  result(): Promise<ExecResult> {
    this.#result ??= this.#collect();
    return this.#result;
  }

  async #collect(): Promise<ExecResult> {
    const begun = performance.now();
    const result = await collect(this, begun);
    if (this.#options.check === true && result.exitCode !== 0) throw commandError(this.#command, result);
    return result;
  }

  then<Kept = number, Refused = never>(
    kept?: ((exitCode: number) => Kept | PromiseLike<Kept>) | null,
    refused?: ((reason: unknown) => Refused | PromiseLike<Refused>) | null,
  ): Promise<Kept | Refused> {
    return this.result()
      .then(({ exitCode }) => exitCode)
      .then(kept, refused);
  }

  catch<Refused = never>(refused?: ((reason: unknown) => Refused | PromiseLike<Refused>) | null): Promise<number | Refused> {
    return this.then(null, refused) as Promise<number | Refused>;
  }

  finally(ended?: (() => void) | null): Promise<number> {
    return this.then().finally(ended);
  }
}

/** Everything a command wrote, and how it ended. */
export async function collect(events: AsyncIterable<OutputEvent>, begun: number): Promise<ExecResult> {
  const [stdout, stderr]: [string[], string[]] = [[], []];
  let [exitCode, hint]: [number, string | undefined] = [0, undefined];
  try {
    for await (const event of events) {
      if (event.type === "exit") ({ exitCode, hint } = event);
      else (event.type === "stdout" ? stdout : stderr).push(event.text);
    }
  } catch (error) {
    if (!(error instanceof SandboxTimeout)) throw error;
    throw error.followed({ stdout: stdout.join(""), stderr: stderr.join("") });
  }
  return view<ExecResult>({
    stdout: stdout.join(""),
    stderr: stderr.join(""),
    exit_code: exitCode,
    duration_ms: Math.round(performance.now() - begun),
    truncated: false,
    ...(hint === undefined ? {} : { hint }),
  });
}

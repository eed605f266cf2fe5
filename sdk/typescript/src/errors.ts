/** Everything that can go wrong, as types. */

import type { PartialOutput, TemplateProgress } from "./additions.js";
import { hintHere } from "./hints.js";
import type { TemplateBuild } from "./templates.js";
import { view } from "./view.js";

/** What an error knows besides its message. */
export interface ErrorDetails {
  /** The HTTP status, when the server answered. */
  statusCode?: number | undefined;
  /** A stable word for programs, such as `not_found`. */
  code?: string | undefined;
  /** What may help. */
  hint?: string | undefined;
  /** Names the request in the server's log. */
  requestId?: string | undefined;
  /** Seconds after which the server asks to be asked again. */
  retryAfter?: number | undefined;
  /** The answer itself. Its body has been read. */
  response?: Response | undefined;
  /** How far a template is that has to be prepared first (`template_preparing`). */
  progress?: TemplateProgress | undefined;
  /** What led to it. */
  cause?: unknown;
}

/**
 * Any failure of the SDK.
 *
 * @example
 * ```ts
 * try {
 *   await client.sandboxes.get("nonesuch");
 * } catch (error) {
 *   if (error instanceof NotFoundError) console.log(error.message, error.code, error.requestId);
 *   else throw error;
 * }
 * ```
 */
export class PandaStackError extends Error {
  /** The HTTP status, when the server answered. */
  readonly statusCode: number | undefined;
  /** A stable word for programs, such as `not_found`. */
  readonly code: string | undefined;
  /** What may help. */
  readonly hint: string | undefined;
  /** Names the request in the server's log. */
  readonly requestId: string | undefined;
  /** Seconds after which the server asks to be asked again. */
  readonly retryAfter: number | undefined;
  /** How far a template is that has to be prepared first (`template_preparing`). */
  declare readonly progress?: TemplateProgress;
  /** The answer itself. Its body has been read. */
  readonly response: Response | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.statusCode = details.statusCode;
    this.code = details.code;
    this.hint = details.hint;
    this.requestId = details.requestId;
    this.retryAfter = details.retryAfter;
    if (details.progress !== undefined) this.progress = details.progress;
    // Kept out of what consoles print: it repeats the rest.
    this.response = undefined;
    Object.defineProperty(this, "response", { value: details.response, enumerable: false });
  }

  /** The same as `statusCode`. */
  get status(): number | undefined {
    return this.statusCode;
  }
}

/** The key is missing, wrong or not allowed to do this (401, 403). */
export class AuthError extends PandaStackError {}
/** The key is good but does not allow this (403). */
export class PermissionDeniedError extends AuthError {}
/** There is no such thing, or it belongs to another workspace (404). */
export class NotFoundError extends PandaStackError {}
/** The server does not accept the request (4xx). */
export class BadRequestError extends PandaStackError {}
/** It is in the way of something else: the name is taken, the volume attached (409). */
export class ConflictError extends BadRequestError {}
/** Too many requests, or a quota is used up (429). */
export class RateLimitError extends BadRequestError {}
/** The server failed (5xx). */
export class ServerError extends PandaStackError {}
/** The server has no room right now (503, 507). */
export class CapacityError extends ServerError {}
/** The server could not be reached, or the connection broke. */
export class NetworkError extends PandaStackError {
  /** Whether nothing listened at the server's address: then the request was not sent. */
  get refused(): boolean {
    return isRefusal(this.cause);
  }
}
/** The server did not answer in time. What was asked for may have been done. */
export class RequestTimeoutError extends NetworkError {}

/** A command or cell ran longer than its timeout and was ended. What it had written until then is kept. */
export class SandboxTimeout extends PandaStackError {
  /** What it had written. */
  readonly stdout: string;
  /** What it had written to standard error. */
  readonly stderr: string;
  /** What a cell had shown, one object of MIME types each. */
  readonly results: readonly Readonly<Record<string, string>>[];
  /** Whether more was written than is kept here. */
  readonly truncated: boolean;

  readonly #reason: string;

  constructor(message: string, details: ErrorDetails = {}, partial: PartialOutput = {}) {
    const { stdout = "", stderr = "", results = [], truncated = false } = partial;
    super([message, ...lastOf("stdout", stdout), ...lastOf("stderr", stderr)].join("\n"), details);
    this.#reason = message;
    this.stdout = stdout;
    this.stderr = stderr;
    this.results = results;
    this.truncated = truncated;
  }

  /** @internal The same with what was followed here, where that is more than the server keeps for an error. */
  followed(partial: PartialOutput): SandboxTimeout {
    const { stdout = "", stderr = "", results = [] } = partial;
    if (stdout.length + stderr.length < this.stdout.length + this.stderr.length) return this;
    const shown = results.length > 0 ? results : [...this.results];
    return new SandboxTimeout(this.#reason, { ...detailsOf(this), cause: this.cause }, { stdout, stderr, results: shown });
  }
}

/** A stream ended before the command did. It may still run: see `sandbox.processes`. */
export class ExecInterrupted extends NetworkError {}

/** Characters of output that the text of a timeout repeats. */
const TAIL_CHARACTERS = 500;

/** The end of an output as a line of an error's text, when there was any. */
function lastOf(name: string, output: string): string[] {
  const said = output.trim().slice(-TAIL_CHARACTERS);
  return said === "" ? [] : [`last of ${name}: ${said}`];
}

/** A command exited with another code than 0, and `check` was asked for. */
export class CommandError extends PandaStackError {
  /** Its exit code; 128 + n when signal n ended it. */
  readonly exitCode: number;
  /** What it wrote. */
  readonly stdout: string;
  /** What it wrote to standard error. */
  readonly stderr: string;

  constructor(message: string, exitCode: number, stdout = "", stderr = "", hint?: string) {
    super(message, { hint });
    this.exitCode = exitCode;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

/** A template could not be built, or not in time. */
export class TemplateBuildError extends PandaStackError {
  /** The build as it was last seen. */
  readonly build: TemplateBuild;

  constructor(message: string, build: TemplateBuild) {
    super(message);
    this.build = build;
  }
}

/** An exploration had no winner to give. */
export class ExploreError extends PandaStackError {}

/** Errors behind an error that are looked at. */
const CHAIN_MOST = 32;

/** Whether nothing listened at an address, or at any of those that a name has. Each runtime says so in its own way. */
function isRefusal(failed: unknown): boolean {
  const told = [failed];
  for (let looked = 0; looked < CHAIN_MOST && told.length > 0; looked++) {
    const one = told.pop();
    if (!isRecord(one)) continue;
    const { code, message, cause, errors } = one;
    if (code === "ECONNREFUSED" || code === "ConnectionRefused" || /connection refused/i.test(String(message))) return true;
    told.push(cause, ...(Array.isArray(errors) ? (errors as unknown[]) : []));
  }
  return false;
}

/** Whether a value is an object with members. */
function isRecord(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

const text = (value: unknown): string | undefined =>
  typeof value === "string" && value !== "" ? value : undefined;

/** Seconds that a `Retry-After` header asks for: a number, or an HTTP date. */
export function retryAfterSeconds(header: string | null, now = Date.now()): number | undefined {
  if (header === null || header.trim() === "") return undefined;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, (date - now) / 1000);
}

/** Errors whose text is the server's own, not that of something in between. */
const explained = new WeakSet<PandaStackError>();

/** Whether the server itself said what is wrong. */
export function isExplained(error: PandaStackError): boolean {
  return explained.has(error);
}

/** What was written until a timeout, of errors that tell. */
const partials = new WeakMap<PandaStackError, PartialOutput>();

/** What was written until a timeout, from an error's body. */
function partialOf(partial: Record<string, unknown>): PartialOutput {
  const { stdout, stderr, truncated, results } = partial;
  return {
    stdout: typeof stdout === "string" ? stdout : "",
    stderr: typeof stderr === "string" ? stderr : "",
    truncated: truncated === true,
    results: Array.isArray(results) ? (results as Record<string, string>[]) : [],
  };
}

/** The error that an answer stands for. */
export function errorOf(response: Response, body: string): PandaStackError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    parsed = undefined;
  }
  const members = isRecord(parsed) ? parsed : {};
  const message =
    text(members["error"]) ??
    text(members["message"]) ??
    text(members["detail"]) ??
    (text(body.trim().slice(0, 500)) || `the server answered ${response.status}`);
  const details: ErrorDetails = {
    statusCode: response.status,
    code: text(members["code"]),
    hint: hintHere(text(members["hint"])),
    requestId: text(members["request_id"]) ?? response.headers.get("x-request-id") ?? undefined,
    progress: isRecord(members["progress"]) ? view<TemplateProgress>(members["progress"]) : undefined,
    retryAfter: retryAfterSeconds(response.headers.get("retry-after")),
    response,
  };
  const error = new (classOf(response.status))(message, details);
  if (text(members["error"]) !== undefined) explained.add(error);
  if (isRecord(members["partial"])) partials.set(error, partialOf(members["partial"]));
  return error;
}

function classOf(status: number): new (message: string, details: ErrorDetails) => PandaStackError {
  if (status === 401) return AuthError;
  if (status === 403) return PermissionDeniedError;
  if (status === 404) return NotFoundError;
  if (status === 409) return ConflictError;
  if (status === 429) return RateLimitError;
  if (status === 503 || status === 507) return CapacityError;
  if (status >= 500) return ServerError;
  // Redirects too: the API never redirects, so what answered is not the API.
  return BadRequestError;
}

/** A failure of the server that means that a command or cell took too long, as such. */
export function timeoutOf(error: unknown): unknown {
  if (!(error instanceof ServerError)) return error;
  if (error.code !== "timeout" && !soundsLate(error.message)) return error;
  return new SandboxTimeout(error.message, { ...detailsOf(error), cause: error }, partials.get(error));
}

/** What an `error` event of a stream tells. */
export interface ToldError {
  error?: string;
  code?: string;
  hint?: string;
  partial?: Record<string, unknown>;
}

/** The error that an `error` event of a stream stands for. */
export function errorNamed({ error: message = "the stream failed", code, hint }: ToldError): PandaStackError {
  const known: Record<string, new (message: string, details: ErrorDetails) => PandaStackError> = {
    invalid: BadRequestError,
    too_large: BadRequestError,
    unauthorized: AuthError,
    forbidden: PermissionDeniedError,
    not_found: NotFoundError,
    conflict: ConflictError,
    quota: RateLimitError,
    rate_limited: RateLimitError,
    internal: ServerError,
    upstream: ServerError,
    unavailable: CapacityError,
    no_space: CapacityError,
    timeout: SandboxTimeout,
  };
  return new (known[code ?? ""] ?? PandaStackError)(message, { code, hint: hintHere(hint) });
}

/** The timeout that an `error` event of a stream stands for, when it stands for one. */
export function toldTimeout(told: ToldError): SandboxTimeout | undefined {
  const { error: message = "the time was up", code, hint, partial } = told;
  if (code === undefined ? !soundsLate(message) : code !== "timeout") return undefined;
  return new SandboxTimeout(message, { code, hint: hintHere(hint) }, partial === undefined ? {} : partialOf(partial));
}

/** Whether a text without a code tells of a timeout. */
function soundsLate(message: string): boolean {
  const said = message.toLowerCase();
  return (said.includes("timeout") && !said.includes("i/o timeout")) || said.includes("deadline exceeded");
}

function detailsOf(error: PandaStackError): ErrorDetails {
  const { statusCode, code, hint, requestId, retryAfter, response } = error;
  return { statusCode, code, hint, requestId, retryAfter, response };
}

/** Requests: how they are addressed, how long they are waited for, and when they are sent again. */

import type { Settings } from "./config.js";
import {
  AuthError,
  NetworkError,
  PandaStackError,
  RequestTimeoutError,
  errorOf,
  isExplained,
} from "./errors.js";
import { preparing, Progress, type TemplateWait } from "./progress.js";
import { readEvents, type ServerEvent } from "./sse.js";

/** Values of a query; absent ones are left out, those of a list are repeated. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** How a request is sent. */
export interface RequestOptions {
  query?: Query | undefined;
  /** A body of JSON. */
  json?: unknown;
  /** Any other body. */
  body?: BodyInit | undefined;
  headers?: Record<string, string> | undefined;
  /** How long to wait for the whole answer; 0: as long as it takes. */
  timeoutMs?: number | undefined;
  /** Ends the request, and the waiting between retries. */
  signal?: AbortSignal | undefined;
  /** What the answer is read as; JSON when absent. */
  parseAs?: "json" | "text" | "bytes" | "none" | undefined;
  /** Sent once, whatever comes back. */
  noRetry?: boolean | undefined;
  /** How a template is waited for that has to be prepared first. */
  wait?: TemplateWait | undefined;
}

/** When a request is sent again. */
export type Retry =
  /**
   * A 404 to a request that only asks (or deletes) once more: what was just made may not be known everywhere yet. And such a request
   * whose connection is refused, for a while, where the server answered this client before: one that restarts closes its port
   * first, answers what it has, and then begins anew. Where nothing ever answered, the address is wrong, and once that time was
   * waited in vain the server is gone: then it fails at once.
   */
  | "echo"
  /**
   * Also while the server is full and says when to come back, and while it prepares the template that is needed. It promises that
   * nothing was made.
   */
  | "capacity"
  /** Also while the sandbox does not answer yet. */
  | "warmup";

/** Calls that move machines take longer than others. */
export const MOVE_TIMEOUT_MS = 180_000;
/** Code of the error of a stream that had begun. */
export const STREAM_BROKEN = "stream_broken";
const ECHO_DELAY_MS = 200;
/** Sent twice they do the same as once. */
const REPEATABLE = ["GET", "HEAD", "DELETE"];
/** Between the first refused connection and the last: a server takes up to 20 s to stop, and some to start. */
const RESTART_MS = 45_000;
const RESTART_FIRST_MS = 250;
const RESTART_LAST_MS = 2000;
const JITTER_CAPS_SECONDS = [1, 2, 4, 8, 15];
const NO_SPACE_FLOOR_SECONDS = 0.5;
const WARMUP_FIRST_MS = 500;
const WARMUP_LAST_MS = 2000;
const WARMUP_SIGNS = ["connect: connection refused", "no route to host", "i/o timeout"];

/** The way to the server. */
export class Transport {
  /** Whether there was an answer, and the server was not found gone since. */
  #answered = false;

  constructor(readonly settings: Settings) {}

  /** The address of a path below `/v1`, or of one that says so itself. */
  url(path: string, query: Query = {}): string {
    const rest = path.replace(/^\/+/, "");
    const url = new URL(`${this.settings.baseUrl}/${rest.startsWith("v1/") ? rest : `v1/${rest}`}`);
    for (const [name, value] of Object.entries(query)) {
      for (const one of [value].flat()) if (one !== undefined) url.searchParams.append(name, String(one));
    }
    return url.href;
  }

  /** An address that the server gave, which may be a path of it. */
  absolute(address: string): string {
    return address.startsWith("/") ? `${this.settings.baseUrl}${address}` : address;
  }

  /** Sends a request and reads its answer. */
  async request<T>(method: string, path: string, options: RequestOptions = {}, retry: Retry = "echo"): Promise<T> {
    return this.#again(method, options, retry, () =>
      this.#within(options, async (signal) => {
        const response = await this.#send(method, path, options, signal);
        return (await this.#read(response, options.parseAs ?? "json")) as T;
      }),
    );
  }

  /** Sends a request and hands out its answer before it has been read. The timeout ends with the headers. */
  async open(method: string, path: string, options: RequestOptions = {}, retry: Retry = "echo"): Promise<Response> {
    return this.#again(method, options, retry, async () => {
      const { signal, calm, release } = this.#deadline(options);
      try {
        const response = await this.#send(method, path, options, signal);
        // From here on the clock no longer counts; the caller's signal does, for as long as the answer is read.
        calm();
        return response;
      } catch (error) {
        release();
        throw error;
      }
    });
  }

  /** Follows a stream of events. */
  async *events(
    method: string,
    path: string,
    options: RequestOptions = {},
    retry: Retry = "echo",
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const headers = { accept: "text/event-stream", ...options.headers };
    const response = await this.open(method, path, { ...options, headers }, retry);
    if (response.body === null) return;
    try {
      yield* readEvents(response.body);
    } catch (cause) {
      throw failure(cause, options.signal, "the stream broke", STREAM_BROKEN);
    }
  }

  async #send(method: string, path: string, options: RequestOptions, signal: AbortSignal | undefined): Promise<Response> {
    const { apiKey, fetch } = this.settings;
    if (apiKey === undefined) {
      throw new AuthError("no API key", {
        code: "unauthorized",
        hint: "set PANDASTACK_API_KEY, or pass apiKey: new PandaStack({ apiKey })",
      });
    }
    const headers: Record<string, string> = {
      accept: "application/json",
      authorization: `Bearer ${apiKey}`,
      ...options.headers,
    };
    let body = options.body;
    if (options.json !== undefined) {
      headers["content-type"] = "application/json";
      body = JSON.stringify(options.json);
    }
    const init: RequestInit & { duplex?: "half" } = { method, headers, redirect: "manual" };
    if (body !== undefined) init.body = body;
    if (body instanceof ReadableStream) init.duplex = "half";
    if (signal !== undefined) init.signal = signal;
    let response: Response;
    try {
      response = await fetch(this.url(path, options.query), init);
    } catch (cause) {
      throw failure(cause, signal, `could not reach ${this.settings.baseUrl}`);
    }
    this.#answered = true;
    if (response.ok) return response;
    throw errorOf(response, await response.text().catch(() => ""));
  }

  async #read(response: Response, as: NonNullable<RequestOptions["parseAs"]>): Promise<unknown> {
    try {
      if (as === "bytes") return new Uint8Array(await response.arrayBuffer());
      const text = await response.text();
      if (as === "none") return undefined;
      if (as === "text") return text;
      return text === "" ? undefined : JSON.parse(text);
    } catch (cause) {
      if (cause instanceof SyntaxError) {
        throw new PandaStackError("the answer is not JSON: is this a PandaStack server?", {
          cause,
          statusCode: response.status,
          response,
        });
      }
      throw failure(cause, undefined, "the answer broke off");
    }
  }

  /** A signal for one attempt: the caller's, and that of the clock. */
  #deadline(options: RequestOptions): { signal: AbortSignal; calm: () => void; release: () => void } {
    const controller = new AbortController();
    const timeoutMs = options.timeoutMs ?? this.settings.timeoutMs;
    const expire = () => controller.abort(new RequestTimeoutError(`no answer within ${timeoutMs / 1000} s`));
    const timer = timeoutMs > 0 && Number.isFinite(timeoutMs) ? setTimeout(expire, timeoutMs) : undefined;
    const follow = () => controller.abort(options.signal?.reason);
    if (options.signal?.aborted) follow();
    else options.signal?.addEventListener("abort", follow, { once: true });
    const calm = () => clearTimeout(timer);
    const release = () => {
      calm();
      options.signal?.removeEventListener("abort", follow);
    };
    return { signal: controller.signal, calm, release };
  }

  async #within<T>(options: RequestOptions, attempt: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { signal, release } = this.#deadline(options);
    try {
      return await attempt(signal);
    } catch (error) {
      // What broke because it was ended failed for the reason it was ended for.
      throw signal.aborted ? signal.reason : error;
    } finally {
      release();
    }
  }

  async #again<T>(method: string, options: RequestOptions, retry: Retry, attempt: () => Promise<T>): Promise<T> {
    if (options.noRetry === true) return attempt();
    const progress = new Progress(this.settings, options.wait);
    try {
      return await this.#attempts(method, options, retry, attempt, progress);
    } finally {
      progress.end();
    }
  }

  async #attempts<T>(
    method: string,
    options: RequestOptions,
    retry: Retry,
    attempt: () => Promise<T>,
    progress: Progress,
  ): Promise<T> {
    const { maxCreateRetrySeconds, execReadyTimeoutMs } = this.settings;
    const begun = Date.now();
    // Room is waited for from when it is missing: preparing a template before that does not count.
    let fullSince: number | undefined;
    const replayable = !(options.body instanceof ReadableStream);
    const repeatable = REPEATABLE.includes(method);
    let echoed = false;
    let [refusedSince, restartMs] = [undefined as number | undefined, RESTART_FIRST_MS];
    let [refusals, delayMs] = [0, WARMUP_FIRST_MS];
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof PandaStackError)) throw error;
        if (preparing(error)) {
          const seconds = retry === "capacity" ? progress.moved(error) : undefined;
          if (seconds === undefined) throw error;
          [fullSince, refusals] = [undefined, 0];
          await pause(seconds * 1000, options.signal);
          continue;
        }
        progress.end();
        if (error.statusCode === 404 && !echoed && repeatable) {
          echoed = true;
          await pause(ECHO_DELAY_MS, options.signal);
          continue;
        }
        if (repeatable && this.#answered && error instanceof NetworkError && error.refused) {
          refusedSince ??= Date.now();
          const left = refusedSince + RESTART_MS - Date.now();
          // It is gone: what is asked of it next is not waited for as long again.
          if (left <= 0) this.#answered = false;
          if (left <= 0) throw error;
          await pause(Math.min(restartMs, left), options.signal);
          restartMs = Math.min(restartMs * 1.5, RESTART_LAST_MS);
          continue;
        }
        if (retry === "capacity") {
          const seconds = refusalSeconds(error, refusals++);
          fullSince ??= Date.now();
          if (seconds !== undefined && Date.now() - fullSince + seconds * 1000 <= maxCreateRetrySeconds * 1000) {
            await pause(seconds * 1000, options.signal);
            continue;
          }
        }
        if (retry === "warmup" && replayable && coming(error) && Date.now() - begun + delayMs <= execReadyTimeoutMs) {
          await pause(delayMs, options.signal);
          delayMs = Math.min(delayMs * 1.5, WARMUP_LAST_MS);
          continue;
        }
        throw error;
      }
    }
  }
}

/** How long to wait after a refusal for want of room; nothing when it is not one. */
function refusalSeconds(error: PandaStackError, refusals: number): number | undefined {
  const { statusCode, retryAfter } = error;
  const named = retryAfter !== undefined;
  // A 503 of something in between does not explain itself, and promises nothing.
  const full =
    statusCode === 507 || (statusCode === 429 && named) || (statusCode === 503 && named && isExplained(error));
  if (!full) return undefined;
  const cap = JITTER_CAPS_SECONDS[Math.min(refusals, JITTER_CAPS_SECONDS.length - 1)] ?? 0;
  const wait = (retryAfter ?? 0) + Math.random() * cap;
  return statusCode === 507 ? Math.max(wait, NO_SPACE_FLOOR_SECONDS) : wait;
}

function coming(error: PandaStackError): boolean {
  return (error.statusCode ?? 0) >= 500 && WARMUP_SIGNS.some((sign) => error.message.includes(sign));
}

/** What a broken request fails with: the reason it was ended for, or that the network did. */
function failure(cause: unknown, signal: AbortSignal | undefined, otherwise: string, code?: string): unknown {
  if (cause instanceof PandaStackError) return cause;
  if (signal?.aborted) return signal.reason ?? cause;
  const why = cause instanceof Error ? (cause.cause instanceof Error ? cause.cause.message : cause.message) : String(cause);
  return new NetworkError(`${otherwise}: ${why}`, { cause, code });
}

/** Waits, unless the signal comes first. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** A path made of names: `at("sandboxes", id, "exec")`. */
export function at(...parts: (string | number)[]): string {
  for (const part of parts) {
    // These would lead somewhere else, however they are written.
    if (part === "" || part === "." || part === "..") throw new TypeError(`"${part}" names nothing`);
  }
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

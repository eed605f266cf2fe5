/** Changes of files, as they happen. */

import { errorNamed, NetworkError, type ToldError } from "./errors.js";
import type { ServerEvent } from "./sse.js";
import type { Transport } from "./transport.js";
import { view } from "./view.js";

/** How files are watched. */
export interface WatchOptions {
  /** Whether to watch everything below a directory too. */
  recursive?: boolean | undefined;
  /** Ends the watching. */
  signal?: AbortSignal | undefined;
}

/** A file that changed. */
export interface FileEvent {
  /** What happened; `overflow` says that there were more changes than could be told: look again. */
  readonly kind: "created" | "changed" | "removed" | "moved" | "overflow";
  /** The file; for `overflow` what is watched. */
  readonly path: string;
  /** Where it is now, when it was moved. */
  readonly to?: string;
  /** Whether it is a directory. */
  readonly isDir: boolean;
}

/**
 * Changes of files below a path, from when it was made on. Leaving the loop, or `close`, ends it.
 *
 * @example
 * ```ts
 * for await (const { kind, path } of sandbox.files.watch("/workspace", { recursive: true })) {
 *   console.log(kind, path);
 * }
 * ```
 */
export class FileWatcher implements AsyncIterable<FileEvent> {
  readonly #closing = new AbortController();
  readonly #events: AsyncGenerator<ServerEvent, void, undefined>;
  readonly #path: Promise<string>;
  /** Settles once every change from now on is told; fails when the path cannot be watched. */
  readonly ready: Promise<void>;

  /** @internal */
  constructor(transport: Transport, url: string, path: Promise<string>, { recursive, signal }: WatchOptions) {
    const { signal: closed } = this.#closing;
    if (signal?.aborted) this.#closing.abort(signal.reason);
    signal?.addEventListener("abort", () => this.#closing.abort(signal.reason), { once: true, signal: closed });
    this.#path = path;
    this.#events = (async function* () {
      const query = { path: await path, recursive };
      yield* transport.events("GET", url, { query, signal: closed }, "warmup");
    })();
    this.ready = this.#begin();
    // A watcher that is only looped over tells there.
    this.ready.catch(() => undefined);
  }

  /** Ends it: the loop over it is over. */
  close(): void {
    this.#closing.abort(CLOSED);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FileEvent, void, undefined> {
    try {
      await this.ready;
      for await (const { event, data } of this.#events) {
        if (event === "change") {
          yield view<FileEvent>(JSON.parse(data));
        } else if (event === "overflow") {
          yield { kind: "overflow", path: await this.#path, isDir: true };
        } else if (event === "error") {
          throw errorNamed(JSON.parse(data) as ToldError);
        }
      }
      if (!this.#closing.signal.aborted) throw new NetworkError("the server ended the watching");
    } catch (error) {
      if (this.#closing.signal.reason !== CLOSED) throw error;
    } finally {
      this.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #begin(): Promise<void> {
    for (;;) {
      const { done, value } = await this.#events.next();
      if (done) throw new NetworkError("the server ended the watching");
      if (value.event === "ready") return;
      if (value.event === "error") throw errorNamed(JSON.parse(value.data) as ToldError);
    }
  }
}

/** Why a watcher ended that was closed. */
const CLOSED = new DOMException("the watcher was closed", "AbortError");

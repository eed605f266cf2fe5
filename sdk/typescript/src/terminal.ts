/** Shells in terminals. */

import { NetworkError, PandaStackError } from "./errors.js";
import { openSocket, type Socket } from "./socket.js";
import { at, type Transport } from "./transport.js";

/** How a terminal is opened. */
export interface TerminalOptions {
  /** Lines; 24 when absent. */
  rows?: number | undefined;
  /** Characters of a line; 80 when absent. */
  cols?: number | undefined;
  /** Working directory; the user's home when absent. */
  cwd?: string | undefined;
  /** Kind of terminal; xterm-256color when absent. */
  term?: string | undefined;
  /** Called with what the terminal shows, as it comes. */
  onData?: ((bytes: Uint8Array) => void) | undefined;
  /** Ends the opening. */
  signal?: AbortSignal | undefined;
}

/**
 * A login shell in a terminal of its own. Looping gives what it shows; `exited` tells how it ended.
 *
 * @example
 * ```ts
 * await using terminal = await sandbox.terminal({ rows: 40, cols: 120 });
 * terminal.write("ls -l\nexit 3\n");
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * console.log(await terminal.exited); // 3
 * ```
 */
export class Terminal implements AsyncIterable<Uint8Array> {
  readonly #socket: Socket;
  readonly #queue: Uint8Array[] = [];
  #wake: (() => void) | undefined;
  #over = false;
  /** The shell's exit code, once it has ended. */
  readonly exited: Promise<number>;

  private constructor(socket: Socket, onData: TerminalOptions["onData"]) {
    this.#socket = socket;
    this.exited = new Promise((resolve, reject) => {
      let failure: string | undefined;
      socket.addEventListener("message", ((event: { data: unknown }) => {
        if (typeof event.data === "string") {
          const said = JSON.parse(event.data) as { exit?: number; error?: string };
          if (typeof said.exit === "number") resolve(said.exit);
          else failure = said.error ?? failure;
          return;
        }
        const bytes = new Uint8Array(event.data as ArrayBuffer);
        if (onData === undefined) this.#queue.push(bytes);
        else onData(bytes);
        this.#wake?.();
      }) as (event: never) => void);
      socket.addEventListener("close", () => {
        this.#over = true;
        this.#wake?.();
        // Nothing more happens if it was told before.
        reject(
          failure === undefined
            ? new NetworkError("the terminal was closed before its shell ended")
            : new PandaStackError(failure),
        );
      });
    });
    // A caller that never asks how it ended has nothing to handle.
    this.exited.catch(() => undefined);
  }

  /** @internal */
  static async open(transport: Transport, sandboxId: string, options: TerminalOptions = {}): Promise<Terminal> {
    const { rows, cols, cwd, term, onData, signal } = options;
    const path = at("sandboxes", sandboxId, "exec", "pty");
    const attach = (socket: Socket) => new Terminal(socket, onData);
    return openSocket(transport, path, { rows, cols, cwd, term }, "a terminal", attach, signal);
  }

  /** Types. */
  write(data: string | Uint8Array): void {
    this.#socket.send(typeof data === "string" ? new TextEncoder().encode(data) : data);
  }

  /** Changes its size. */
  resize(rows: number, cols: number): void {
    this.#socket.send(JSON.stringify({ resize: { rows, cols } }));
  }

  /** Hangs up: the shell and what runs in it get SIGHUP. */
  close(): void {
    this.#socket.close(1000);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const bytes = this.#queue.shift();
      if (bytes !== undefined) yield bytes;
      else if (this.#over) return;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    await this.exited.catch(() => undefined);
  }
}

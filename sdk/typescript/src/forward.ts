/** Ports of this machine that lead to ports of a sandbox. */

import type { AddressInfo, Server, Socket as LocalSocket } from "node:net";

import { builtin } from "./node.js";
import { expectSockets, openSocket, type Socket } from "./socket.js";
import { at, type Transport } from "./transport.js";
import { warn } from "./warnings.js";

/** How a port is forwarded. */
export interface PortForwardOptions {
  /** The port of this machine; a free one when absent. */
  localPort?: number | undefined;
  /** The address of this machine to listen on; `127.0.0.1` when absent, which only this machine reaches. */
  host?: string | undefined;
  /** Called when a connection could not be passed on, such as when nothing listens in the sandbox; a warning when absent. */
  onError?: ((error: unknown) => void) | undefined;
}

/** Bytes on their way to the server at which reading from a local connection pauses. */
const BUFFERED_MAX = 1 << 20;
const BUFFERED_CHECK_MS = 10;
/** Bytes that a local program has not read at which the tunnel is not read any more. The server ends one that is left unread long. */
const UNREAD_MAX = 16 << 20;
const EOF = JSON.stringify({ eof: true });

/** A port of this machine that leads to a port of a sandbox, until it is closed. */
export class PortForward {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #options: PortForwardOptions;
  readonly #server: Server;
  readonly #closing = new AbortController();
  readonly #connections = new Set<LocalSocket>();
  /** The port of this machine. */
  readonly localPort: number = 0;
  /** The address of this machine. */
  readonly host: string = "";
  /** The port of the sandbox. */
  readonly port: number;

  private constructor(transport: Transport, sandboxId: string, port: number, options: PortForwardOptions, server: Server) {
    this.#transport = transport;
    this.#path = at("sandboxes", sandboxId, "ports", port, "tcp");
    this.#options = options;
    this.#server = server;
    this.port = port;
  }

  /** @internal */
  static async open(
    transport: Transport,
    sandboxId: string,
    port: number,
    options: PortForwardOptions = {},
  ): Promise<PortForward> {
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw new RangeError(`${port} is no port`);
    const { createServer } = await builtin("node:net");
    await expectSockets(transport);
    const { localPort = 0, host = "127.0.0.1" } = options;
    // Either side may go on writing when the other one has nothing more to say.
    const server = createServer({ allowHalfOpen: true });
    const forward = new PortForward(transport, sandboxId, port, options, server);
    server.on("connection", (local) => void forward.#carry(local));
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(localPort, host, resolve);
    });
    const bound = server.address() as AddressInfo;
    return Object.assign(forward, { localPort: bound.port, host: bound.address });
  }

  /** Stops listening and ends all connections. */
  async close(): Promise<void> {
    this.#closing.abort(new Error("the port is no longer forwarded"));
    for (const local of this.#connections) local.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Passes one connection on. */
  async #carry(local: LocalSocket): Promise<void> {
    this.#connections.add(local);
    local.once("close", () => this.#connections.delete(local));
    local.on("error", () => local.destroy());
    local.pause();
    try {
      await openSocket(
        this.#transport,
        this.#path,
        {},
        `port ${this.port} of the sandbox`,
        (socket) => join(local, socket),
        this.#closing.signal,
      );
      local.resume();
    } catch (error) {
      local.destroy();
      if (this.#closing.signal.aborted) return;
      const { onError = (failure: unknown) => warn([String(failure)]) } = this.#options;
      onError(error);
    }
  }
}

/** Carries bytes both ways between a local connection and its tunnel. */
function join(local: LocalSocket, tunnel: Socket): void {
  let over = false;
  local.on("data", (bytes) => {
    tunnel.send(bytes);
    if (tunnel.bufferedAmount > BUFFERED_MAX) drain();
  });
  // WebSockets do not tell when they have room again.
  const drain = (): void => {
    local.pause();
    const timer = setInterval(() => {
      if (!over && tunnel.bufferedAmount > BUFFERED_MAX / 2) return;
      clearInterval(timer);
      local.resume();
    }, BUFFERED_CHECK_MS);
  };
  local.on("end", () => {
    if (!over) tunnel.send(EOF);
  });
  local.once("close", () => tunnel.close());
  tunnel.addEventListener("message", (({ data }: { data: unknown }) => {
    if (typeof data === "string") {
      if ((JSON.parse(data) as { eof?: boolean }).eof === true) local.end();
      return;
    }
    if (!local.writable) return;
    local.write(new Uint8Array(data as ArrayBuffer));
    if (local.writableLength > UNREAD_MAX && tunnel.pause !== undefined) {
      tunnel.pause();
      local.once("drain", () => tunnel.resume?.());
    }
  }) as (event: never) => void);
  tunnel.addEventListener("close", (({ code }: { code?: number }) => {
    over = true;
    // Anything but a normal end is a connection that broke, and looks like one here.
    if (code === 1000 || code === 1005) local.destroySoon();
    else (local.resetAndDestroy ?? local.destroy).call(local);
  }) as (event: never) => void);
}

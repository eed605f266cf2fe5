/** WebSockets, whichever way this runtime has them. */

import { NetworkError, PandaStackError } from "./errors.js";
import type { Query, Transport } from "./transport.js";

/** What all WebSockets have in common. */
export interface Socket {
  binaryType: string;
  /** Bytes that were sent and have not left yet. */
  readonly bufferedAmount: number;
  /** Stops reading; with `ws` only. */
  pause?(): void;
  /** Goes on reading. */
  resume?(): void;
  send(data: string | Uint8Array): void;
  close(code?: number): void;
  addEventListener(type: "open" | "close" | "error" | "message", listener: (event: never) => void): void;
}

type SocketClass = new (url: string, options?: { headers: Record<string, string> }) => Socket;

/** Opens a socket to a path of the server, which is `what` in errors. `attach` gets it before anything can arrive on it. */
export async function openSocket<T>(
  transport: Transport,
  path: string,
  query: Query,
  what: string,
  attach: (socket: Socket) => T,
  signal?: AbortSignal,
): Promise<T> {
  signal?.throwIfAborted();
  const { apiKey } = transport.settings;
  const { Class, takesHeaders } = await socketClass(transport);
  // Where headers cannot be set, which is in browsers and Deno, the key goes into the address.
  const asked = takesHeaders || apiKey === undefined ? query : { ...query, access_token: apiKey };
  const url = transport.url(path, asked).replace(/^http/, "ws");
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const socket = takesHeaders ? new Class(url, { headers }) : new Class(url);
  socket.binaryType = "arraybuffer";
  const attached = attach(socket);
  await new Promise<void>((resolve, reject) => {
    const give = (event: { message?: string; error?: unknown }) => {
      const why = event.message ? `: ${event.message}` : "";
      reject(new NetworkError(`could not open ${what}${why}`, { cause: event.error }));
    };
    const end = () => {
      socket.close();
      reject(signal?.reason as Error);
    };
    socket.addEventListener("open", () => {
      signal?.removeEventListener("abort", end);
      resolve();
    });
    socket.addEventListener("error", give as (event: never) => void);
    socket.addEventListener("close", (() => give({ message: "the server closed the connection" })) as (event: never) => void);
    signal?.addEventListener("abort", end, { once: true });
  });
  return attached;
}

/** Fails where there are no WebSockets. */
export async function expectSockets(transport: Transport): Promise<void> {
  await socketClass(transport);
}

async function socketClass(transport: Transport): Promise<{ Class: SocketClass; takesHeaders: boolean }> {
  const runtime = globalThis as { WebSocket?: unknown; process?: { versions?: { node?: string } }; Deno?: unknown };
  const headed = runtime.process?.versions?.node !== undefined && runtime.Deno === undefined;
  const given = transport.settings.WebSocket as unknown as SocketClass | undefined;
  if (given !== undefined) return { Class: given, takesHeaders: headed };
  if (typeof runtime.WebSocket === "function") {
    return { Class: runtime.WebSocket as unknown as SocketClass, takesHeaders: headed };
  }
  try {
    // Not a literal: bundlers would make it a must.
    const module: string = "ws";
    const loaded = (await import(module)) as { default: SocketClass & { WebSocket?: SocketClass } };
    const Class = loaded.default.WebSocket ?? loaded.default;
    return { Class, takesHeaders: true };
  } catch (cause) {
    throw new PandaStackError("this runtime has no WebSocket", {
      cause,
      hint: "use Node 22 or later, or install `ws`",
    });
  }
}

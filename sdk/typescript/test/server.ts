/** A small HTTP server for tests that answers as it is told. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { PandaStack, type ClientConfig } from "@pandastack/sdk";

/** A request as it arrived. */
export interface Arrived {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  body: Buffer;
  /** Milliseconds since the server started. */
  at: number;
}

export type Handler = (request: Arrived, response: ServerResponse, count: number) => void;

/** What a test has to do with. */
export interface Stage {
  client: PandaStack;
  url: string;
  port: number;
  arrived: Arrived[];
  /** Closes the port, and all connections. */
  stop: () => Promise<void>;
}

/** Serves for as long as the test runs. `count` tells handlers which request it is, from 0. */
export async function serving(
  handler: Handler,
  test: (stage: Stage) => Promise<void>,
  config: ClientConfig = {},
  port = 0,
): Promise<void> {
  const begun = performance.now();
  const arrived: Arrived[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const url = new URL(request.url ?? "/", "http://server");
      const one: Arrived = {
        method: request.method ?? "",
        path: url.pathname,
        query: url.searchParams,
        headers: request.headers,
        body: Buffer.concat(pieces),
        at: performance.now() - begun,
      };
      arrived.push(one);
      handler(one, response, arrived.length - 1);
    });
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const bound = (server.address() as AddressInfo).port;
  const url = `http://127.0.0.1:${bound}`;
  const stop = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  try {
    await test({ client: new PandaStack({ apiKey: "pds_test", baseUrl: url, ...config }), url, port: bound, arrived, stop });
  } finally {
    await stop();
  }
}

/** Answers in JSON. */
export function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

/** A sandbox as the server describes it. */
export function sandboxBody(id = "box", more: object = {}): object {
  return {
    id,
    template: "minimal",
    cpu: 1,
    memory_mb: 256,
    status: "running",
    metadata: { some_key: "kept" },
    boot_mode: "snapshot",
    created_at: "2026-01-01T00:00:00Z",
    env_names: [],
    network: "none",
    persistent: false,
    ttl_seconds: 300,
    volumes: [],
    guest_ip: null,
    ...more,
  };
}

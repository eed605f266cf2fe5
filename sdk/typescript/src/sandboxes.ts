/** Sandboxes: made, found, deleted. */

import type { Client } from "./client.js";
import type { CreateSandbox, NetworkMode, SandboxInfo } from "./generated.js";
import { Sandbox } from "./sandbox.js";
import { at, MOVE_TIMEOUT_MS, type Transport } from "./transport.js";
import { listIn, snakeCase, view, type Whole } from "./view.js";

/** How a sandbox is made. */
export interface SandboxCreateOptions {
  /** The template; `ubuntu-24.04` when absent, or that of the snapshot. */
  template?: string | undefined;
  /** A snapshot to start from: its memory, processes and disk. */
  fromSnapshot?: string | undefined;
  /** Seconds of idleness after which it goes; the server's default when absent. */
  ttlSeconds?: number | undefined;
  /** Sleeps when idle instead of being deleted. */
  persistent?: boolean | undefined;
  /** Words of the caller's own, such as `{ task: "42" }`. */
  metadata?: Record<string, string> | undefined;
  /** Variables of every command. */
  env?: Record<string, string> | undefined;
  /** Whether it may send to the world. */
  network?: NetworkMode | undefined;
  /** Volumes to attach, as `/dev/vdb`, `/dev/vdc`, … in this order. */
  volumes?: readonly { name: string; readOnly?: boolean | undefined; read_only?: boolean | undefined }[] | undefined;
  /** Size of its root disk in GiB, at least that of what it starts from; the same when absent. */
  diskGb?: number | undefined;
  /** How long to wait for it. */
  timeoutMs?: number | undefined;
  /** Ends the waiting. A sandbox that comes to be nevertheless goes by its time to live. */
  signal?: AbortSignal | undefined;
  /** @deprecated Use `fromSnapshot`. */
  from_snapshot?: string | undefined;
  /** @deprecated Use `diskGb`. */
  disk_gb?: number | undefined;
  /** @deprecated Use `ttlSeconds`. */
  ttl_seconds?: number | undefined;
  /** @deprecated Has no effect: templates say how large machines are. */
  cpu?: number | undefined;
  /** @deprecated Has no effect: templates say how large machines are. */
  memoryMb?: number | undefined;
  /** @deprecated Has no effect: templates say how large machines are. */
  memory_mb?: number | undefined;
}

const TEMPLATE = "ubuntu-24.04";

/** Sandboxes of the workspace. */
export class SandboxesAPI {
  readonly #client: Client;
  readonly #transport: Transport;

  /** @internal */
  constructor(client: Client, transport: Transport) {
    this.#client = client;
    this.#transport = transport;
  }

  /**
   * Makes a sandbox and waits until it runs. A server that is full is asked again for a while.
   *
   * @example
   * ```ts
   * await using sandbox = await client.sandboxes.create({ template: "base", ttlSeconds: 600, metadata: { task: "42" } });
   * ```
   */
  async create(options: SandboxCreateOptions = {}): Promise<Sandbox> {
    const from = options.fromSnapshot ?? options.from_snapshot;
    const body: Whole<CreateSandbox> = {
      template: options.template ?? (from === undefined ? TEMPLATE : undefined),
      from_snapshot: from,
      ttl_seconds: options.ttlSeconds ?? options.ttl_seconds,
      persistent: options.persistent,
      metadata: options.metadata,
      env: options.env,
      network: options.network,
      disk_gb: options.diskGb ?? options.disk_gb,
      volumes: options.volumes?.map(({ name, readOnly, read_only }) => ({ name, read_only: readOnly ?? read_only })),
    };
    const timeoutMs = options.timeoutMs ?? Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS);
    const request = { json: body, timeoutMs, signal: options.signal };
    return this.#made(await this.#transport.request("POST", "/sandboxes", request, "capacity"));
  }

  /** All of them, newest first. */
  async list(): Promise<Sandbox[]> {
    const answer = await this.#transport.request("GET", "/sandboxes");
    return listIn(answer, "items", "sandboxes").map((one) => this.#made(one));
  }

  /** One of them. Looking does not wake it. */
  async get(id: string): Promise<Sandbox> {
    return this.#made(await this.#transport.request("GET", at("sandboxes", id)));
  }

  /** One from what was kept of it, such as by another program. Asks nobody: see `refresh`. */
  fromInfo(info: Partial<SandboxInfo> & { readonly id: string }): Sandbox {
    return this.#made(snakeCase(info));
  }

  /** Deletes one, with everything in it. */
  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("sandboxes", id), { parseAs: "none", timeoutMs: MOVE_TIMEOUT_MS });
  }

  /** The same as `delete`. */
  kill(id: string): Promise<void> {
    return this.delete(id);
  }

  #made(answer: unknown): Sandbox {
    return new Sandbox(this.#client, this.#transport, view<SandboxInfo>(answer));
  }
}

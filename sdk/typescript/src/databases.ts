/** Databases that servers run. */

import { PandaStackError } from "./errors.js";
import { at, pause, type Transport } from "./transport.js";
import { listIn, snakeCase, view, type Given, type Shown } from "./view.js";

/** A database. Credentials are there while it runs. */
export type DatabaseInfo = Shown<{
  id: string;
  /** `provisioning`, `running`, `hibernated`, `waking`, `restoring`, `failed` or `error`. */
  status: string;
  template: string;
  label?: string;
  /** Seconds of Unix time. */
  created_at?: number;
  host?: string;
  port?: number;
  database?: string;
  username?: string;
  password?: string;
  connection_url?: string;
  broker_port?: number;
  broker_token?: string;
  broker_url?: string;
  error?: string;
  failover_available?: boolean;
  failover_reason?: string;
  failover_eta_seconds?: number;
  sandbox_id?: string;
  size?: string;
  cloned_from?: string;
  always_on?: boolean;
}>;

export type DatabaseCreateOptions = Given<{
  label: string;
  /** `1g`, `4g` or `16g`. */
  size: string;
  always_on: boolean;
  cpu: number;
  memory_mb: number;
}>;

export type DatabaseCloneOptions = Given<{
  label: string;
  /** The instant to go back to (RFC 3339); now when absent. */
  target_time: string;
  size: string;
}>;

export type DatabaseConnection = Shown<{ connection_url: string; broker_url: string; broker_token?: string }>;

const READY_MS = 180_000;
const CLONE_MS = 600_000;
const FAILOVER_MS = 300_000;
const POLL_FIRST_MS = 1000;
const POLL_LAST_MS = 5000;

/** Databases. Servers that have none answer 404. */
export class DatabasesAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes one and waits until it can be used. */
  async create(options: DatabaseCreateOptions = {}): Promise<DatabaseInfo> {
    const made = view<DatabaseInfo>(await this.#transport.request("POST", "/databases", { json: snakeCase(options) }));
    return this.waitUntilReady(made.id);
  }

  /** Waits until one can be used. */
  async waitUntilReady(id: string, timeoutMs = READY_MS): Promise<DatabaseInfo> {
    const end = Date.now() + timeoutMs;
    for (let delayMs = POLL_FIRST_MS; ; delayMs = Math.min(delayMs * 1.5, POLL_LAST_MS)) {
      const database = await this.get(id);
      if (database.status === "running" && database.connectionUrl) return database;
      if (database.status === "failed" || database.status === "error") {
        throw new PandaStackError(database.error ?? `database ${id} failed`);
      }
      if (Date.now() + delayMs > end) throw new PandaStackError(`database ${id} is not ready yet: ${database.status}`);
      await pause(delayMs);
    }
  }

  async list(): Promise<DatabaseInfo[]> {
    return view<DatabaseInfo[]>(listIn(await this.#transport.request("GET", "/databases"), "items", "databases"));
  }

  async get(id: string): Promise<DatabaseInfo> {
    return view<DatabaseInfo>(await this.#transport.request("GET", at("databases", id)));
  }

  /** Deletes one with everything in it. */
  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("databases", id), { parseAs: "none" });
  }

  /** How to connect to one that runs. */
  async connection(id: string): Promise<DatabaseConnection> {
    return view<DatabaseConnection>(await this.#transport.request("GET", at("databases", id, "connection")));
  }

  /** Restores one that failed. Its id and address stay; its credentials do not. */
  async failover(id: string): Promise<DatabaseInfo> {
    const request = { timeoutMs: FAILOVER_MS };
    return view<DatabaseInfo>(await this.#transport.request("POST", at("databases", id, "failover"), request));
  }

  async wake(id: string): Promise<{ id: string; status: string; detail?: string }> {
    return view(await this.#transport.request("POST", at("databases", id, "wake")));
  }

  async update(id: string, change: Given<{ always_on: boolean }>): Promise<DatabaseInfo> {
    return view<DatabaseInfo>(await this.#transport.request("PATCH", at("databases", id), { json: snakeCase(change) }));
  }

  /** Copies one, as it is or as it was. */
  async clone(
    id: string,
    options: DatabaseCloneOptions = {},
    { wait = true, timeoutMs = CLONE_MS }: { wait?: boolean; timeoutMs?: number } = {},
  ): Promise<DatabaseInfo> {
    const answer = await this.#transport.request("POST", at("databases", id, "clone"), { json: snakeCase(options) });
    const clone = view<DatabaseInfo>(answer);
    return wait ? this.waitUntilReady(clone.id, timeoutMs) : clone;
  }

  /** New credentials. Connections with the old ones end. */
  async resetCredentials(id: string): Promise<DatabaseInfo> {
    const request = { timeoutMs: READY_MS };
    const database = view<DatabaseInfo>(await this.#transport.request("POST", at("databases", id, "reset-credentials"), request));
    return database?.connectionUrl ? database : this.get(id);
  }
}

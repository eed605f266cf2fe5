/** The client: where everything begins. */

import "./dispose.js";

import type { MeInfo } from "./additions.js";
import { AppsAPI } from "./apps.js";
import { settings, type ClientConfig } from "./config.js";
import { DatabasesAPI } from "./databases.js";
import { FunctionsAPI, SchedulesAPI } from "./functions.js";
import type { Audit, AuditEntry, BootStats, Health, NetworkMode, VersionInfo } from "./generated.js";
import { SnapshotsAPI, TokensAPI, VolumesAPI } from "./resources.js";
import { SandboxesAPI } from "./sandboxes.js";
import { TemplatesAPI } from "./templates.js";
import { Transport, type RequestOptions } from "./transport.js";
import { view } from "./view.js";

/**
 * A client of a PandaStack server.
 *
 * Without arguments it finds the key in `PANDASTACK_API_KEY` or `PANDASTACK_TOKEN`, and the server in `PANDASTACK_API` or
 * `PANDASTACK_API_URL`.
 *
 * @example
 * ```ts
 * import { PandaStack } from "@pandastack/sdk";
 *
 * const client = new PandaStack();
 * await using sandbox = await client.sandboxes.create({ template: "base" });
 * console.log((await sandbox.exec("echo hello")).stdout);
 * ```
 */
export class PandaStack {
  /** Sandboxes. */
  readonly sandboxes: SandboxesAPI;
  /** The same as `sandboxes`. */
  readonly sandbox: SandboxesAPI;
  /** Templates. */
  readonly templates: TemplatesAPI;
  /** Snapshots. */
  readonly snapshots: SnapshotsAPI;
  /** Volumes. */
  readonly volumes: VolumesAPI;
  /** Keys. */
  readonly tokens: TokensAPI;
  /** Functions, where the server has them. */
  readonly functions: FunctionsAPI;
  /** Schedules of functions, where the server has them. */
  readonly schedules: SchedulesAPI;
  /** Databases, where the server has them. */
  readonly databases: DatabasesAPI;
  /** Apps, where the server has them. */
  readonly apps: AppsAPI;
  /** Host that previews live under; the server's own when absent, or `localhost` if that is on this host. */
  previewHost: string | undefined;
  readonly #transport: Transport;

  constructor(config: ClientConfig = {}) {
    const transport = new Transport(settings(config));
    this.#transport = transport;
    this.previewHost = transport.settings.previewHost;
    this.sandboxes = new SandboxesAPI(this, transport);
    this.sandbox = this.sandboxes;
    this.templates = new TemplatesAPI(transport);
    this.snapshots = new SnapshotsAPI(transport);
    this.volumes = new VolumesAPI(transport);
    this.tokens = new TokensAPI(transport);
    this.functions = new FunctionsAPI(transport);
    this.schedules = new SchedulesAPI(transport);
    this.databases = new DatabasesAPI(transport);
    this.apps = new AppsAPI(transport);
  }

  /** The server's address. */
  get baseUrl(): string {
    return this.#transport.settings.baseUrl;
  }
  /** The same as `baseUrl`. */
  get apiUrl(): string {
    return this.baseUrl;
  }
  /** The key. */
  get apiKey(): string | undefined {
    return this.#transport.settings.apiKey;
  }
  /** How long an answer is waited for. */
  get timeoutMs(): number {
    return this.#transport.settings.timeoutMs;
  }

  /** Host that previews live under. */
  get previewSuffix(): string {
    if (this.previewHost) return this.previewHost.replace(/^\.+/, "");
    const { hostname, port } = new URL(this.baseUrl);
    // Names under localhost lead to this host, and every server knows them.
    if (isHere(hostname)) return port === "" ? "localhost" : `localhost:${port}`;
    return hostname.replace(/^api\./, "");
  }

  /** How previews are reached: on this host as the server itself is, elsewhere with TLS. */
  get previewScheme(): "http" | "https" {
    const here = isHere(this.previewSuffix.split(":")[0] ?? "");
    return here && this.baseUrl.startsWith("http:") ? "http" : "https";
  }

  /** Who is calling. */
  async me(): Promise<MeInfo> {
    return view<MeInfo>(await this.#transport.request("GET", "/me"));
  }

  /**
   * Sets what the workspace's new sandboxes reach when `network` is absent; `null` stands for the operator's default. Sandboxes that
   * exist already keep what they have.
   */
  async setNetworkDefault(network: NetworkMode | null): Promise<MeInfo> {
    return view<MeInfo>(await this.#transport.request("PATCH", "/me", { json: { network_default: network } }));
  }

  /** Which program answers. */
  async version(): Promise<VersionInfo> {
    return view<VersionInfo>(await this.#transport.request("GET", "/version"));
  }

  /** Requests that changed something, newest first. */
  async audit(options: { since?: string | number | Date; limit?: number } = {}): Promise<AuditEntry[]> {
    const { since, limit } = options;
    const query = { since: since instanceof Date ? since.toISOString() : since, limit };
    return view<Audit>(await this.#transport.request("GET", "/audit", { query })).entries;
  }

  /** Times of recent creations. */
  async bootStats(options: { limit?: number } = {}): Promise<BootStats> {
    return view<BootStats>(await this.#transport.request("GET", "/stats/boot", { query: { limit: options.limit } }));
  }

  /** Whether the server can work. Needs no key. */
  async health(): Promise<Health> {
    const response = await this.#transport.settings.fetch(`${this.baseUrl}/healthz`);
    return view<Health>(await response.json());
  }

  /** Any request, for what has no method of its own yet. Paths are below `/v1`. The answer is what the server sent. */
  request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    return this.#transport.request<T>(method, path, options);
  }
}

function isHere(name: string): boolean {
  return ["127.0.0.1", "[::1]", "localhost"].includes(name) || name.endsWith(".localhost");
}

/** The client, under the name that earlier releases gave it. */
export const Client = PandaStack;
export type Client = PandaStack;

/** Sandboxes: made, found, deleted. */

import type { CreateSandbox, DeletedSandboxes, SandboxInfo, VolumeRequest } from "./additions.js";
import type { Client } from "./client.js";
import type { NetworkMode, SandboxStatus } from "./generated.js";
import type { ProgressListener } from "./progress.js";
import { Sandbox } from "./sandbox.js";
import { at, MOVE_TIMEOUT_MS, type Query, type Transport } from "./transport.js";
import { listIn, snakeCase, view, type Whole } from "./view.js";

/** A volume to attach: its name, `name:/mount` or `name:/mount:ro`, or the same in words. */
export type VolumeMount =
  | string
  | {
      /** The volume's name. */
      name: string;
      /** Where to mount it, such as `/mnt`; it is only attached when absent. */
      mount?: string | undefined;
      /** Whether the guest may not write to it. */
      readOnly?: boolean | undefined;
      /** @deprecated Use `readOnly`. */
      read_only?: boolean | undefined;
    };

/** Which sandboxes. A sandbox must fit all that is given. */
export interface SandboxFilter {
  /** What they are doing: any of these. */
  status?: SandboxStatus | readonly SandboxStatus[] | undefined;
  /** The template they were made from. */
  template?: string | undefined;
  /** Their name. */
  name?: string | undefined;
  /** Keys they all have, with their values; `true` stands for any value. */
  metadata?: Record<string, string | true> | undefined;
  /** The sandbox they were forked from, or from whose snapshot they were made. */
  parent?: string | undefined;
  /** A sandbox they descend from, over however many generations. */
  root?: string | undefined;
}

/** How a sandbox is made. */
export interface SandboxCreateOptions {
  /** A name, which stands wherever an id does: lowercase letters, digits and `-`, at most 40, unique among your sandboxes. */
  name?: string | undefined;
  /** The template; `ubuntu-24.04` when absent, or that of the snapshot. */
  template?: string | undefined;
  /** A snapshot to start from: its memory, processes and disk. */
  fromSnapshot?: string | undefined;
  /** Seconds of idleness after which it goes; the server's default when absent. */
  ttlSeconds?: number | undefined;
  /** Sleeps when idle instead of being deleted. */
  persistent?: boolean | undefined;
  /** Metadata, such as `{ task: "42" }`. */
  metadata?: Record<string, string> | undefined;
  /** Variables of every command. */
  env?: Record<string, string> | undefined;
  /** Whether it may send to the world. */
  network?: NetworkMode | undefined;
  /** Volumes to attach, as `/dev/vdb`, `/dev/vdc`, … in this order, and to mount where a path is given. */
  volumes?: readonly VolumeMount[] | undefined;
  /** Virtual CPUs; those of the template when absent. The first use of a size prepares the template for it. */
  cpu?: number | undefined;
  /** Memory in MiB, rounded up to a multiple of 64; that of the template when absent. */
  memoryMb?: number | undefined;
  /** Size of its root disk in GiB, at least that of what it starts from; the same when absent. */
  diskGb?: number | undefined;
  /** Called while the template is prepared; the client's own when absent. */
  onProgress?: ProgressListener | false | undefined;
  /** How long it may take in all, with the preparation of its template; the client's own limit when absent. */
  maxCreateWaitSeconds?: number | undefined;
  /** How long to wait for one answer of the server. Preparing a template takes many. */
  timeoutMs?: number | undefined;
  /** Ends the waiting. A sandbox that is created nevertheless is deleted when it has idled for `ttlSeconds`. */
  signal?: AbortSignal | undefined;
  /** @deprecated Use `fromSnapshot`. */
  from_snapshot?: string | undefined;
  /** @deprecated Use `diskGb`. */
  disk_gb?: number | undefined;
  /** @deprecated Use `ttlSeconds`. */
  ttl_seconds?: number | undefined;
  /** @deprecated Use `memoryMb`. */
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
   * Makes a sandbox and waits until it runs. The first use of a template prepares it, which is waited for as long as it makes
   * progress. A server that is full is asked again for a while.
   *
   * @example
   * ```ts
   * await using sandbox = await client.sandboxes.create({ template: "base", ttlSeconds: 600, metadata: { task: "42" } });
   * ```
   */
  async create(options: SandboxCreateOptions = {}): Promise<Sandbox> {
    const from = options.fromSnapshot ?? options.from_snapshot;
    const body: Whole<CreateSandbox> = {
      name: options.name,
      template: options.template ?? (from === undefined ? TEMPLATE : undefined),
      from_snapshot: from,
      ttl_seconds: options.ttlSeconds ?? options.ttl_seconds,
      persistent: options.persistent,
      metadata: options.metadata,
      env: options.env,
      network: options.network,
      disk_gb: options.diskGb ?? options.disk_gb,
      cpu: options.cpu,
      memory_mb: options.memoryMb ?? options.memory_mb,
      volumes: options.volumes?.map(volumeRequest),
    };
    const timeoutMs = options.timeoutMs ?? Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS);
    const { signal, onProgress, maxCreateWaitSeconds } = options;
    const what = body.template === undefined ? undefined : `template ${body.template}`;
    // The caller hears soon how far the template is, instead of waiting for it in silence.
    const headers = { prefer: "wait=2" };
    const request = { json: body, headers, timeoutMs, signal, wait: { what, onProgress, maxCreateWaitSeconds } };
    return this.#made(await this.#transport.request("POST", "/sandboxes", request, "capacity"));
  }

  /** All of them, newest first, or those that fit a filter. */
  async list(filter: SandboxFilter = {}): Promise<Sandbox[]> {
    const answer = await this.#transport.request("GET", "/sandboxes", { query: filterQuery(filter) });
    return listIn(answer, "items", "sandboxes").map((one) => this.#made(one));
  }

  /** One of them, by its id, the beginning of it, or its name. Looking does not wake it. */
  async get(id: string): Promise<Sandbox> {
    return this.#made(await this.#transport.request("GET", at("sandboxes", id)));
  }

  /** One from what was kept of it, such as by another program. Sends no request: see `refresh`. */
  fromInfo(info: Partial<SandboxInfo> & { readonly id: string }): Sandbox {
    return this.#made(snakeCase(info));
  }

  /** Deletes one, with everything in it. */
  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("sandboxes", id), { parseAs: "none", timeoutMs: MOVE_TIMEOUT_MS });
  }

  /**
   * Deletes all sandboxes that fit a filter, with everything in them; without any filter, `all: true` must say so.
   *
   * @example
   * ```ts
   * const { deleted } = await client.sandboxes.deleteAll({ metadata: { task: "42" } });
   * ```
   */
  async deleteAll(which: SandboxFilter & { all?: boolean | undefined }): Promise<DeletedSandboxes> {
    for (const [name, value] of Object.entries(which)) {
      // Most likely a variable that was never set; left out, it would delete more than was meant.
      if (value === undefined) throw new TypeError(`${name} is undefined: leave it out, or give it a value`);
    }
    const query: Query = { ...filterQuery(which), all: which.all };
    const request = { query, timeoutMs: Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS) };
    return view<DeletedSandboxes>(await this.#transport.request("DELETE", "/sandboxes", request));
  }

  /** The same as `delete`. */
  kill(id: string): Promise<void> {
    return this.delete(id);
  }

  #made(answer: unknown): Sandbox {
    return new Sandbox(this.#client, this.#transport, view<SandboxInfo>(answer));
  }
}

/** A volume to attach, from however it was written. */
function volumeRequest(given: VolumeMount): VolumeRequest {
  if (typeof given !== "string") {
    const { name, mount, readOnly, read_only } = given;
    return { name, mount, read_only: readOnly ?? read_only };
  }
  const [name = "", mount, mode, ...rest] = given.split(":");
  const known = rest.length === 0 && (mode === undefined || mode === "ro" || mode === "rw");
  if (name === "" || mount === "" || !known) {
    throw new TypeError(`a volume is "name", "name:/mount" or "name:/mount:ro", not ${JSON.stringify(given)}`);
  }
  // Nothing is mounted at `ro`: it can only be meant as the mode.
  if (mount === "ro") return { name, mount: undefined, read_only: true };
  return { name, mount, read_only: mode === "ro" ? true : undefined };
}

/** A filter as a query. Empty values are sent too: the server refuses them, where leaving them out would mean all. */
function filterQuery({ status, template, name, metadata, parent, root }: SandboxFilter): Query {
  if (Array.isArray(status) && status.length === 0) throw new TypeError("status is an empty list, which nothing fits");
  return {
    status: status === undefined ? undefined : [status].flat(),
    template,
    name,
    metadata: metadata && Object.entries(metadata).map(([key, value]) => (value === true ? key : `${key}=${value}`)),
    parent,
    root,
  };
}

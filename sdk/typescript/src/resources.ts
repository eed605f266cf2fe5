/** What a workspace has besides sandboxes: snapshots, volumes, keys. */

import type {
  CreatedToken,
  CreateToken,
  CreateVolume,
  PatchVolume,
  SnapshotInfo,
  TokenInfo,
  VolumeInfo,
} from "./generated.js";
import { at, MOVE_TIMEOUT_MS, type Transport } from "./transport.js";
import { listIn, view, type Whole } from "./view.js";

/** Snapshots: instants of sandboxes, memory and disk. They outlive them. */
export class SnapshotsAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All of them, newest first, or those of one sandbox. */
  async list(options: { sandboxId?: string; sandbox_id?: string } = {}): Promise<SnapshotInfo[]> {
    const query = { sandbox_id: options.sandboxId ?? options.sandbox_id };
    const answer = await this.#transport.request("GET", "/snapshots", { query });
    return view<SnapshotInfo[]>(listIn(answer, "snapshots", "items"));
  }

  /** One of them. */
  async get(id: string): Promise<SnapshotInfo> {
    return view<SnapshotInfo>(await this.#transport.request("GET", at("snapshots", id)));
  }

  /** Deletes one. What was made from it is not affected. */
  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("snapshots", id), { parseAs: "none" });
  }
}

/** How a volume is made. */
export interface VolumeOptions {
  name: string;
  /** Its size in MiB; 256 when absent. */
  sizeMb?: number | undefined;
  /** @deprecated Use `sizeMb`. */
  size_mb?: number | undefined;
}

/**
 * Volumes: disks that outlive sandboxes. Each is attached as `/dev/vdb`, `/dev/vdc`, …, with a file system on it.
 *
 * @example
 * ```ts
 * await client.volumes.create({ name: "data", sizeMb: 512 });
 * const sandbox = await client.sandboxes.create({ volumes: [{ name: "data" }] });
 * await sandbox.exec("mount /dev/vdb /mnt", { check: true });
 * ```
 */
export class VolumesAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes one. */
  async create(options: VolumeOptions): Promise<VolumeInfo> {
    const body: Whole<CreateVolume> = { name: options.name, size_mb: options.sizeMb ?? options.size_mb };
    const request = { json: body, timeoutMs: this.#moveTimeoutMs() };
    return view<VolumeInfo>(await this.#transport.request("POST", "/volumes", request));
  }

  /** All of them. */
  async list(): Promise<VolumeInfo[]> {
    return view<VolumeInfo[]>(listIn(await this.#transport.request("GET", "/volumes"), "volumes", "items"));
  }

  /** One of them. */
  async get(name: string): Promise<VolumeInfo> {
    return view<VolumeInfo>(await this.#transport.request("GET", at("volumes", name)));
  }

  /** Makes one larger. Volumes only grow. */
  async resize(name: string, sizeMb: number): Promise<VolumeInfo> {
    const body: Whole<PatchVolume> = { size_mb: sizeMb };
    const request = { json: body, timeoutMs: this.#moveTimeoutMs() };
    return view<VolumeInfo>(await this.#transport.request("PATCH", at("volumes", name), request));
  }

  /** Deletes one with what is on it. Refused while it is attached. */
  async delete(name: string): Promise<void> {
    await this.#transport.request("DELETE", at("volumes", name), { parseAs: "none" });
  }

  #moveTimeoutMs(): number {
    return Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS);
  }
}

/** How a key is made. */
export interface TokenOptions {
  /** What people call it. */
  label?: string | undefined;
  /** Days until it stops working; never when absent. */
  expiresInDays?: number | undefined;
  /** What it allows; what the caller's own does when absent. */
  scope?: "read" | "write" | "admin" | undefined;
}

/** Keys of the workspace. */
export class TokensAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All of them, without the keys themselves. */
  async list(): Promise<TokenInfo[]> {
    return view<TokenInfo[]>(listIn(await this.#transport.request("GET", "/me/tokens"), "items", "tokens"));
  }

  /** Makes one. The answer is the only time the key is shown. */
  async create(options: string | TokenOptions = {}): Promise<CreatedToken> {
    const { label, expiresInDays, scope } = typeof options === "string" ? ({ label: options } as TokenOptions) : options;
    const body: Whole<Omit<CreateToken, "name">> = { label, expires_in_days: expiresInDays, scope };
    return view<CreatedToken>(await this.#transport.request("POST", "/me/tokens", { json: body }));
  }

  /** Ends one, named by its prefix. */
  async revoke(prefix: string): Promise<void> {
    await this.#transport.request("DELETE", at("me", "tokens", prefix), { parseAs: "none" });
  }
}

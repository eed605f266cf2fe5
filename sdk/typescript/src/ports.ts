/** Ports of a sandbox, and the ways to reach them. */

import { NetworkError } from "./errors.js";
import type { AddPort, CreatePreview, PortInfo, PreviewLink } from "./generated.js";
import { at, type Transport } from "./transport.js";
import { listIn, view, type Whole } from "./view.js";

/** How a link is made. */
export interface PreviewOptions {
  /** How long it works; an hour when absent, a week at most. */
  ttlSeconds?: number | undefined;
  /** Paths it is limited to, with everything below them; all when absent. */
  paths?: string[] | undefined;
}

/** Ports of a sandbox. */
export class Ports {
  readonly #transport: Transport;
  readonly #sandboxId: string;

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
  }

  /** Ports that something listens on, and those that were named. */
  async list(): Promise<PortInfo[]> {
    const answer = await this.#transport.request("GET", at("sandboxes", this.#sandboxId, "ports"));
    const ports = listIn(answer, "ports").map((one) => (typeof one === "number" ? { port: one } : one));
    return view<PortInfo[]>(ports);
  }

  /** Names a port, whether or not something listens on it yet. */
  async add(port: number, label?: string): Promise<PortInfo> {
    const body: Whole<AddPort> = { port, label };
    const path = at("sandboxes", this.#sandboxId, "ports");
    return view<PortInfo>(await this.#transport.request("POST", path, { json: body }));
  }

  /** Forgets a name. */
  async remove(port: number): Promise<void> {
    await this.#transport.request("DELETE", at("sandboxes", this.#sandboxId, "ports", port), { parseAs: "none" });
  }

  /** Makes a link to a port that works without a key, for a while. */
  async preview(port: number, options: PreviewOptions = {}): Promise<PreviewLink> {
    const body: Whole<CreatePreview> = { port, ttl_seconds: options.ttlSeconds, paths: options.paths };
    const path = at("sandboxes", this.#sandboxId, "preview-token");
    return view<PreviewLink>(await this.#transport.request("POST", path, { json: body }));
  }

  /** A request to a port, through the server. Whatever the guest answers is given as it is. */
  async fetch(port: number, path = "/", init: RequestInit = {}): Promise<Response> {
    const { apiKey, fetch } = this.#transport.settings;
    const headers = new Headers(init.headers);
    if (apiKey !== undefined) headers.set("authorization", `Bearer ${apiKey}`);
    const base = this.#transport.url(at("sandboxes", this.#sandboxId, "proxy", port));
    const url = `${base}/${path.replace(/^\/+/, "")}`;
    try {
      // A redirect leads to another path of the guest, which is not where the server has it.
      return await fetch(url, { redirect: "manual", ...init, headers });
    } catch (cause) {
      if (init.signal?.aborted) throw cause;
      throw new NetworkError(`could not reach ${this.#transport.settings.baseUrl}`, { cause });
    }
  }
}

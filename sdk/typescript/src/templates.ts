/** Templates: what sandboxes are made from. */

import type { TemplateProgress } from "./additions.js";
import { NotFoundError, PandaStackError, TemplateBuildError } from "./errors.js";
import type { TemplateInfo as TemplateOfServer } from "./generated.js";
import { builtin } from "./node.js";
import { at, pause, type Transport } from "./transport.js";
import { listIn, view } from "./view.js";

/** A template. */
export interface TemplateInfo extends Omit<TemplateOfServer, "progressDetail" | "progress_detail"> {
  /** How far it is, and when that last changed, while it is being prepared. */
  readonly progressDetail?: TemplateProgress;
  /** What a catalogue calls it, on servers that have one. */
  readonly label?: string;
  /** What a catalogue says of it. */
  readonly description?: string;
  /** Where a catalogue lists it. */
  readonly category?: string;
  /** What it was made on top of. */
  readonly base?: string;
}

/** A template that is being built, or was. */
export interface TemplateBuild {
  readonly id: string;
  readonly name: string;
  /** `queued`, `running`, `done` or `failed`. */
  readonly status: string;
  /** Why it failed. */
  readonly error?: string;
  readonly startedAt: string;
  /** @deprecated Use `startedAt`. */
  readonly started_at: string;
  readonly endedAt?: string;
  /** @deprecated Use `endedAt`. */
  readonly ended_at?: string;
  readonly sizeMb: number;
  /** @deprecated Use `sizeMb`. */
  readonly size_mb: number;
  readonly bytes?: number;
}

interface BuildSize {
  /** Size of its disk in MiB. */
  sizeMb?: number | undefined;
  /** @deprecated Use `sizeMb`. */
  size_mb?: number | undefined;
  /** Virtual CPUs of its machines. */
  cpu?: number | undefined;
  /** Memory of its machines in MiB. */
  memoryMb?: number | undefined;
  /** @deprecated Use `memoryMb`. */
  memory_mb?: number | undefined;
  /** Whether a template of that name is replaced. */
  replace?: boolean | undefined;
  kernel?: string | undefined;
}

/** A template from a file system in a tar archive. */
export interface TemplateBuildOptions extends BuildSize {
  name: string;
  /** The archive, or the path of it on this machine. */
  rootfs: string | Blob | Uint8Array | ArrayBuffer;
  filename?: string | undefined;
}

/** A template from an OCI image. */
export interface TemplateRegisterOptions extends BuildSize {
  name: string;
  imageRef: string;
}

/** A template from a Dockerfile. */
export interface TemplateDockerfileBuildOptions extends BuildSize {
  name: string;
  /** Its text, or the path of it on this machine. */
  dockerfile: string;
  /** What it may copy from: contents by relative path. */
  context?: Record<string, string | Uint8Array> | undefined;
}

const WAIT_MS = 20 * 60_000;
const INTERVAL_MS = 1000;

/** Templates. */
export class TemplatesAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All there are. */
  async list(): Promise<TemplateInfo[]> {
    return view<TemplateInfo[]>(listIn(await this.#transport.request("GET", "/templates"), "templates", "items"));
  }

  /** One of them. */
  async get(name: string): Promise<TemplateInfo> {
    return view<TemplateInfo>(await this.#transport.request("GET", at("templates", name)));
  }

  /** Deletes one of the workspace's own. */
  async delete(name: string): Promise<void> {
    await this.#transport.request("DELETE", at("templates", name), { parseAs: "none" });
  }

  /** Asks the server to have it ready before the first sandbox needs it. See `waitUntilReady`. */
  async prepare(name: string): Promise<TemplateInfo> {
    return view<TemplateInfo>(await this.#transport.request("POST", at("templates", name, "prepare")));
  }

  /** Prepares one and waits until it is ready: as long as that makes progress, unless `timeoutMs` says how long at most. */
  async waitUntilReady(
    name: string,
    options: { timeoutMs?: number; intervalMs?: number; onProgress?: (progress: string) => void; signal?: AbortSignal } = {},
  ): Promise<TemplateInfo> {
    const end = Date.now() + (options.timeoutMs ?? Infinity);
    const stallMs = this.#transport.settings.templateStallSeconds * 1000;
    let [changedAt, movedAt] = ["", Date.now()];
    let template = await this.prepare(name);
    while (template.status !== "ready") {
      if (template.status !== "preparing") {
        throw new PandaStackError(`template ${name} could not be prepared`, { hint: template.progress });
      }
      if (template.progress !== undefined) options.onProgress?.(template.progress);
      const changed = template.progressDetail?.changedAt ?? template.progress ?? "";
      if (changed !== changedAt) [changedAt, movedAt] = [changed, Date.now()];
      if (Date.now() > Math.min(end, movedAt + stallMs)) {
        throw new PandaStackError(`template ${name} is not ready yet`, { hint: template.progress });
      }
      await pause(options.intervalMs ?? INTERVAL_MS, options.signal);
      template = await this.get(name);
    }
    return template;
  }

  /** Builds one from a file system in a tar archive. */
  async build(options: TemplateBuildOptions): Promise<TemplateBuild> {
    const form = formOf(options);
    let { rootfs } = options;
    if (typeof rootfs === "string") {
      const { readFile } = await builtin("node:fs/promises");
      rootfs = await readFile(rootfs);
    }
    const blob = rootfs instanceof Blob ? rootfs : new Blob([rootfs as BlobPart]);
    form.set("rootfs", blob, options.filename ?? "rootfs.tar.gz");
    return this.#send(form);
  }

  /** Builds one from an OCI image. */
  async register(options: TemplateRegisterOptions): Promise<TemplateBuild> {
    const form = formOf(options);
    form.set("image_ref", options.imageRef);
    return this.#send(form);
  }

  /** Builds one from a Dockerfile. */
  async buildFromDockerfile(options: TemplateDockerfileBuildOptions): Promise<TemplateBuild> {
    const form = formOf(options);
    let { dockerfile } = options;
    // A Dockerfile has an instruction, and so a space; more than one line, most likely.
    if (!/\s/.test(dockerfile.trim())) {
      const { readFile } = await builtin("node:fs/promises");
      dockerfile = await readFile(dockerfile, "utf8");
    }
    form.set("dockerfile", dockerfile);
    for (const [path, content] of Object.entries(options.context ?? {})) {
      form.append(path, new Blob([content as BlobPart]), path.split("/").at(-1) ?? path);
    }
    return this.#send(form);
  }

  /** Builds under way, and those that ended. */
  async builds(): Promise<TemplateBuild[]> {
    const answer = await this.#transport.request("GET", "/templates/builds");
    return view<TemplateBuild[]>(listIn(answer, "builds", "items"));
  }

  /** How a build is. */
  async buildStatus(id: string): Promise<TemplateBuild> {
    return view<TemplateBuild>(await this.#transport.request("GET", at("templates", "builds", id)));
  }

  /** The lines of a build's log; with `follow`, those to come too. */
  async *buildLogs(id: string, options: { follow?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<string, void, undefined> {
    const query = { follow: options.follow === false ? undefined : 1 };
    const events = this.#transport.events("GET", at("templates", "builds", id, "logs"), { query, signal: options.signal });
    for await (const { event, data } of events) {
      if (event === "done") return;
      if (event === "message") yield data;
    }
  }

  /** Waits until a build is done. Throws `TemplateBuildError` when it fails. */
  async waitForBuild(
    id: string,
    options: { intervalMs?: number; timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<TemplateBuild> {
    const end = Date.now() + (options.timeoutMs ?? WAIT_MS);
    for (;;) {
      const build = await this.buildStatus(id);
      if (build.status === "done") return build;
      if (build.status === "failed") throw new TemplateBuildError(build.error ?? `building ${build.name} failed`, build);
      if (Date.now() > end) throw new TemplateBuildError(`building ${build.name} is not done yet`, build);
      await pause(options.intervalMs ?? INTERVAL_MS, options.signal);
    }
  }

  async #send(form: FormData): Promise<TemplateBuild> {
    const answer = await this.#transport.request("POST", "/templates/build", { body: form, timeoutMs: 0 });
    const build = view<TemplateBuild | undefined>(answer);
    if (build === undefined) throw new NotFoundError("the server's answer names no build");
    return build;
  }
}

function formOf(options: BuildSize & { name: string }): FormData {
  const form = new FormData();
  const fields = {
    name: options.name,
    size_mb: options.sizeMb ?? options.size_mb,
    cpu: options.cpu,
    memory_mb: options.memoryMb ?? options.memory_mb,
    kernel: options.kernel,
    replace: options.replace === true ? "true" : undefined,
  };
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) form.set(name, String(value));
  return form;
}

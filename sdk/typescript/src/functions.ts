/** Functions that servers run on request, and schedules for them. */

import { at, MOVE_TIMEOUT_MS, type Transport } from "./transport.js";
import { listIn, snakeCase, view, type Given, type Shown } from "./view.js";

export type FunctionRuntime = "python" | "nodejs";

/** A function. */
export type FunctionInfo = Shown<{
  id: string;
  workspace: string;
  name: string;
  runtime: FunctionRuntime;
  entrypoint: string;
  code_size: number;
  template?: string;
  env?: Record<string, string>;
  public: boolean;
  endpoint?: string;
  url?: string;
  version?: number;
  is_ready?: boolean;
  created_at: string;
  updated_at: string;
}>;

/** One run of a function. */
export type FunctionRun = Shown<{
  id: string;
  workspace: string;
  function_id: string;
  schedule_id?: string;
  sandbox_id?: string;
  /** `queued`, `running`, `success`, `error` or `timeout`. */
  status: string;
  exit_code?: number;
  stdout?: string;
  stderr?: string;
  duration_ms?: number;
  started_at: string;
  ended_at?: string;
}>;
export type FunctionRunInfo = FunctionRun;

/** How a function did lately. Rates are between 0 and 1. */
export type FunctionMetrics = Shown<{
  period: string;
  total: number;
  errors: number;
  error_rate: number;
  p50_ms: number;
  p95_ms: number;
  p99_ms: number;
  cold_start_rate: number;
}>;

/** When a function runs by itself. */
export type ScheduleInfo = Shown<{
  id: string;
  workspace: string;
  name: string;
  function_id: string;
  /** Five fields, UTC. */
  cron: string;
  paused: boolean;
  last_run_at?: string;
  next_run_at?: string;
  created_at: string;
  updated_at: string;
}>;

export interface FunctionCreateOptions {
  entrypoint?: string | undefined;
  env?: Record<string, string> | undefined;
  template?: string | undefined;
  public?: boolean | undefined;
}

export interface FunctionDeployOptions extends FunctionCreateOptions {
  name: string;
  runtime: FunctionRuntime;
  code: string | Uint8Array;
}

export interface FunctionUpdateOptions extends FunctionCreateOptions {
  name?: string | undefined;
}

export interface ScheduleCreateOptions {
  paused?: boolean | undefined;
}

export interface ScheduleUpdateOptions {
  name?: string | undefined;
  cron?: string | undefined;
  paused?: boolean | undefined;
}

const ENTRYPOINTS: Record<FunctionRuntime, string> = { python: "handler.py", nodejs: "index.js" };

/** Functions. Servers that have none answer 404. */
export class FunctionsAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes a function of one file. */
  async create(
    name: string,
    runtime: FunctionRuntime,
    code: string | Uint8Array,
    options: FunctionCreateOptions = {},
  ): Promise<FunctionInfo> {
    const entrypoint = options.entrypoint ?? ENTRYPOINTS[runtime];
    const body = { ...options, name, runtime, entrypoint, code: base64(code) };
    return shown(await this.#transport.request("POST", "/functions", { json: body }));
  }

  /** The same as `create`. */
  deploy({ name, runtime, code, ...options }: FunctionDeployOptions): Promise<FunctionInfo> {
    return this.create(name, runtime, code, options);
  }

  async list(): Promise<FunctionInfo[]> {
    return listIn(await this.#transport.request("GET", "/functions"), "items", "functions").map(shown);
  }

  async get(id: string): Promise<FunctionInfo> {
    return shown(await this.#transport.request("GET", at("functions", id)));
  }

  /** Changes a function. `env` replaces all variables. */
  async update(id: string, options: FunctionUpdateOptions = {}): Promise<FunctionInfo> {
    return shown(await this.#transport.request("PATCH", at("functions", id), { json: options }));
  }

  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("functions", id), { parseAs: "none" });
  }

  /** Its code, compressed with gzip. */
  async getCode(id: string): Promise<ArrayBuffer> {
    const bytes = await this.#transport.request<Uint8Array>("GET", at("functions", id, "code"), { parseAs: "bytes" });
    return bytes.buffer as ArrayBuffer;
  }

  /** Runs it and waits for its end. */
  async invoke(id: string, input?: unknown): Promise<FunctionRun> {
    const request = { json: input === undefined ? {} : { input }, timeoutMs: this.#moveTimeoutMs() };
    return view<FunctionRun>(await this.#transport.request("POST", at("functions", id, "invoke"), request));
  }

  /** The same as `invoke`. */
  trigger(id: string, input?: unknown): Promise<FunctionRun> {
    return this.invoke(id, input);
  }

  /** Writes down a run that happened elsewhere. */
  async recordRun(id: string, run: unknown = {}): Promise<FunctionRun> {
    return view<FunctionRun>(await this.#transport.request("POST", at("functions", id, "runs"), { json: run }));
  }

  /** Its runs, newest first. */
  async runs(id: string): Promise<FunctionRun[]> {
    return view<FunctionRun[]>(listIn(await this.#transport.request("GET", at("functions", id, "runs")), "items", "runs"));
  }

  /** The same as `runs`. */
  listRuns(id: string): Promise<FunctionRun[]> {
    return this.runs(id);
  }

  /** Gives it a new version: a tar archive compressed with gzip. */
  async deployBundle(id: string, bundle: Uint8Array, entrypoint?: string): Promise<FunctionInfo> {
    const form = new FormData();
    form.set("bundle", new Blob([bundle as BlobPart], { type: "application/gzip" }), "code.tar.gz");
    if (entrypoint !== undefined) form.set("entrypoint", entrypoint);
    const request = { body: form, timeoutMs: this.#moveTimeoutMs() };
    return shown(await this.#transport.request("POST", at("functions", id, "deploy"), request));
  }

  /** How it did in the last so many hours. */
  async metrics(id: string, periodHours = 24): Promise<FunctionMetrics> {
    const query = { period: periodHours };
    return view<FunctionMetrics>(await this.#transport.request("GET", at("functions", id, "metrics"), { query }));
  }

  #moveTimeoutMs(): number {
    return Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS);
  }
}

/** Schedules. Servers that have none answer 404. */
export class SchedulesAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Runs a function by the clock: `cron` has five fields, in UTC. */
  create(name: string, functionId: string, cron: string, options?: ScheduleCreateOptions): Promise<ScheduleInfo>;
  create(request: Given<{ name: string; function_id: string; cron: string; paused: boolean }>): Promise<ScheduleInfo>;
  async create(given: string | object, functionId?: string, cron?: string, options: ScheduleCreateOptions = {}): Promise<ScheduleInfo> {
    const asked = typeof given === "string" ? { name: given, function_id: functionId, cron, ...options } : snakeCase(given);
    const body = { paused: false, ...asked };
    return view<ScheduleInfo>(await this.#transport.request("POST", "/schedules", { json: body }));
  }

  async list(): Promise<ScheduleInfo[]> {
    return view<ScheduleInfo[]>(listIn(await this.#transport.request("GET", "/schedules"), "items", "schedules"));
  }

  async get(id: string): Promise<ScheduleInfo> {
    return view<ScheduleInfo>(await this.#transport.request("GET", at("schedules", id)));
  }

  async update(id: string, options: ScheduleUpdateOptions = {}): Promise<ScheduleInfo> {
    return view<ScheduleInfo>(await this.#transport.request("PATCH", at("schedules", id), { json: options }));
  }

  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("schedules", id), { parseAs: "none" });
  }

  /** Runs it now. */
  async trigger(id: string): Promise<FunctionRun> {
    const request = { json: {}, timeoutMs: Math.max(this.#transport.settings.timeoutMs, MOVE_TIMEOUT_MS) };
    return view<FunctionRun>(await this.#transport.request("POST", at("schedules", id, "trigger"), request));
  }

  /** Its runs, newest first. */
  async runs(id: string): Promise<FunctionRun[]> {
    return view<FunctionRun[]>(listIn(await this.#transport.request("GET", at("schedules", id, "runs")), "items", "runs"));
  }

  /** The same as `runs`. */
  listRuns(id: string): Promise<FunctionRun[]> {
    return this.runs(id);
  }
}

/** A function, with its address under both of its names. */
function shown(answer: unknown): FunctionInfo {
  const { url, endpoint } = (answer ?? {}) as { url?: string; endpoint?: string };
  return view<FunctionInfo>({ ...(answer as object), endpoint: endpoint ?? url ?? null });
}

function base64(code: string | Uint8Array): string {
  const bytes = typeof code === "string" ? new TextEncoder().encode(code) : code;
  let binary = "";
  // In pieces: functions take only so many arguments.
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(binary);
}

/** Where the server is and who asks: arguments, then the environment, then the configuration file, then defaults. */

import { builtinNow, environment } from "./node.js";
import type { ProgressListener } from "./progress.js";

/** How a client is set up. Everything has a default. */
export interface ClientConfig {
  /** The key; `PANDASTACK_API_KEY` or `PANDASTACK_TOKEN` when absent. */
  apiKey?: string | undefined;
  /** The same as `apiKey`. */
  token?: string | undefined;
  /** The server; `PANDASTACK_API` or `PANDASTACK_API_URL` when absent. */
  baseUrl?: string | undefined;
  /** The same as `baseUrl`. */
  apiUrl?: string | undefined;
  /** How long to wait for an answer; a minute when absent. Calls that move machines get at least three. */
  timeoutMs?: number | undefined;
  /** How long to go on asking a server that is full; `PANDASTACK_MAX_CREATE_RETRY_SECONDS`, or a minute. 0: not at all. */
  maxCreateRetrySeconds?: number | undefined;
  /** How long to wait for a template whose preparation makes no progress; 600 seconds when absent. */
  templateStallSeconds?: number | undefined;
  /** How long creating a sandbox may take in all, with the preparation of its template; no limit when absent. */
  maxCreateWaitSeconds?: number | undefined;
  /**
   * Called while a template is prepared that a sandbox needs. When absent, and standard error is a terminal, one line there shows
   * it; `false` shows nothing.
   */
  onProgress?: ProgressListener | false | undefined;
  /** How long to wait for a sandbox that does not answer yet; `PANDASTACK_EXEC_READY_TIMEOUT_MS`, or 20 seconds. */
  execReadyTimeoutMs?: number | undefined;
  /** Host that previews live under; `PANDASTACK_PREVIEW_HOST`, or the server's own; `localhost` if that is on this host. */
  previewHost?: string | undefined;
  /** Another `fetch` than the global one. */
  fetch?: typeof fetch | undefined;
  /** Another `WebSocket` than the global one, or that of `ws`. */
  WebSocket?: (new (url: string, options?: never) => unknown) | undefined;
}

/** A configuration with nothing left open. */
export interface Settings {
  apiKey: string | undefined;
  /** Without a slash, or `/v1`, at its end. */
  baseUrl: string;
  timeoutMs: number;
  maxCreateRetrySeconds: number;
  templateStallSeconds: number;
  maxCreateWaitSeconds: number;
  onProgress: ProgressListener | false | undefined;
  execReadyTimeoutMs: number;
  previewHost: string | undefined;
  fetch: typeof fetch;
  WebSocket: ClientConfig["WebSocket"];
}

const BASE_URL = "https://api.pandastack.ai";
const TIMEOUT_MS = 60_000;
const CREATE_RETRY_SECONDS = 60;
const TEMPLATE_STALL_SECONDS = 600;
const EXEC_READY_TIMEOUT_MS = 20_000;

export function settings(config: ClientConfig = {}): Settings {
  const key = config.apiKey ?? config.token ?? environment("PANDASTACK_API_KEY") ?? environment("PANDASTACK_TOKEN");
  const url =
    config.baseUrl ?? config.apiUrl ?? environment("PANDASTACK_API") ?? environment("PANDASTACK_API_URL");
  const file = key === undefined || url === undefined ? configFile() : {};
  const baseUrl = trimmed(url ?? file.baseUrl ?? BASE_URL);
  // A key that was kept for one server is not shown to another.
  const sameServer = file.baseUrl === undefined || trimmed(file.baseUrl) === baseUrl;
  return {
    apiKey: key ?? (sameServer ? file.apiKey : undefined),
    baseUrl,
    timeoutMs: config.timeoutMs ?? TIMEOUT_MS,
    maxCreateRetrySeconds:
      config.maxCreateRetrySeconds ?? number("PANDASTACK_MAX_CREATE_RETRY_SECONDS") ?? CREATE_RETRY_SECONDS,
    templateStallSeconds: config.templateStallSeconds ?? TEMPLATE_STALL_SECONDS,
    maxCreateWaitSeconds: config.maxCreateWaitSeconds ?? Infinity,
    onProgress: config.onProgress,
    execReadyTimeoutMs:
      config.execReadyTimeoutMs ?? number("PANDASTACK_EXEC_READY_TIMEOUT_MS") ?? EXEC_READY_TIMEOUT_MS,
    previewHost: config.previewHost ?? environment("PANDASTACK_PREVIEW_HOST"),
    // Called without a receiver: browsers refuse a `fetch` that is called as a method of something else.
    fetch: config.fetch ?? ((...given: Parameters<typeof fetch>) => globalThis.fetch(...given)),
    WebSocket: config.WebSocket,
  };
}

function trimmed(url: string): string {
  const parsed = new URL(url);
  if (parsed.protocol !== "http:" && parsed.protocol !== "https:") {
    throw new TypeError(`the server's address must begin with http:// or https://, not ${parsed.protocol}//`);
  }
  return `${parsed.origin}${parsed.pathname}`.replace(/\/+$/, "").replace(/\/v1$/, "");
}

function number(name: string): number | undefined {
  const value = Number(environment(name) ?? "none");
  return Number.isFinite(value) && value >= 0 ? value : undefined;
}

/** What `~/.config/pandastack/config.json` says; nothing where it cannot be read at once (browsers, Node before 20.16). */
function configFile(): { apiKey?: string; baseUrl?: string } {
  const home = environment("XDG_CONFIG_HOME") ?? joined(environment("HOME"), ".config");
  const fs = builtinNow("node:fs");
  if (home === undefined || fs === undefined) return {};
  let content: unknown;
  try {
    content = JSON.parse(fs.readFileSync(`${home}/pandastack/config.json`, "utf8"));
  } catch {
    return {};
  }
  if (content === null || typeof content !== "object") return {};
  const members = content as Record<string, unknown>;
  const first = (...names: string[]): string | undefined => {
    const found = names.map((name) => members[name]).find((value) => typeof value === "string" && value !== "");
    return found as string | undefined;
  };
  const apiKey = first("token", "apiKey", "api_key");
  const baseUrl = first("apiUrl", "api_url");
  return { ...(apiKey === undefined ? {} : { apiKey }), ...(baseUrl === undefined ? {} : { baseUrl }) };
}

function joined(parent: string | undefined, child: string): string | undefined {
  return parent === undefined ? undefined : `${parent}/${child}`;
}

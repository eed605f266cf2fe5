/** How sandboxes are forked, woken, changed and followed. */

import type { ForkFailure, NetworkMode } from "./generated.js";
import type { ProgressListener } from "./progress.js";
import type { Sandbox } from "./sandbox.js";

/** How a sandbox is forked. */
export interface SandboxForkOptions {
  /** For the children, on top of the parent's own. */
  metadata?: Record<string, string> | undefined;
  /** Called while a template is prepared that the children need; the client's own when absent. */
  onProgress?: ProgressListener | false | undefined;
  /** How long it may take in all, with the preparation of a template; the client's own limit when absent. */
  maxCreateWaitSeconds?: number | undefined;
  /** Ends the waiting. */
  signal?: AbortSignal | undefined;
}

/** How a sandbox is forked into several. */
export interface SandboxForkTreeOptions extends SandboxForkOptions {
  /** How many children. */
  count: number;
}

/** Children of a fork. */
export interface ForkTree extends Array<Sandbox> {
  /** Names the children together. */
  readonly treeId: string;
  /** The instant they go on from. */
  readonly snapshotId: string;
  /** Children that could not be created. */
  readonly errors: readonly ForkFailure[];
}

/** Which lines of the console. */
export interface LogsOptions {
  /** Go on with the lines to come. */
  follow?: boolean | undefined;
  /** A console has one stream, which is `stdout`. */
  stream?: "stdout" | "stderr" | "both" | undefined;
  /** Only the newest so many of those there are. */
  tail?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Which events. */
export interface EventsOptions {
  /** The newest so many; 50 when absent. */
  tail?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** What to change of a sandbox. `null` removes a key; what is absent stays. */
export interface SandboxChange {
  /** A new name, or `null` to remove it. */
  name?: string | null | undefined;
  metadata?: Record<string, string | null> | undefined;
  env?: Record<string, string | null> | undefined;
  network?: NetworkMode | undefined;
}

/** How a sandbox is woken. */
export interface WakeOptions {
  /**
   * Boot it from its disk: its files are kept, what was in its memory is lost. For a sandbox whose machine ended, or whose memory
   * cannot be used any more; errors of such a sandbox say so in their `hint`.
   */
  cold?: boolean | undefined;
}

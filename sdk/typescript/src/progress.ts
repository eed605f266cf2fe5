/** Waiting for a template that is prepared: how long, and what is shown meanwhile. */

import type { TemplateProgress } from "./additions.js";
import { CapacityError } from "./errors.js";

/** Called each time the server was asked how far a template is. */
export type ProgressListener = (progress: TemplateProgress) => void;

/** How one request waits for a template, where it differs from the client's own settings. */
export interface TemplateWait {
  /** What is prepared, such as `template base`. */
  what?: string | undefined;
  onProgress?: ProgressListener | false | undefined;
  maxCreateWaitSeconds?: number | undefined;
}

interface Limits {
  templateStallSeconds: number;
  maxCreateWaitSeconds: number;
  onProgress: ProgressListener | false | undefined;
}

type Preparing = CapacityError & { readonly progress: TemplateProgress };

/** Whether an answer says that the template is being prepared, and how far it is. */
export function preparing(error: unknown): error is Preparing {
  return error instanceof CapacityError && error.code === "template_preparing" && error.progress !== undefined;
}

const INTERVAL_SECONDS = 2;

/** One request's wait for a template. */
export class Progress {
  readonly #what: string;
  readonly #onProgress: ProgressListener | false | undefined;
  readonly #stallSeconds: number;
  readonly #waitSeconds: number;
  readonly #begun = Date.now();
  #changedAt: string | undefined;
  #movedAt = 0;
  #line: StatusLine | undefined;

  constructor(limits: Limits, wait: TemplateWait = {}) {
    this.#what = wait.what ?? "a template";
    this.#onProgress = wait.onProgress ?? limits.onProgress;
    this.#stallSeconds = limits.templateStallSeconds;
    this.#waitSeconds = wait.maxCreateWaitSeconds ?? limits.maxCreateWaitSeconds;
  }

  /** Takes note of an answer. Gives the seconds to wait before asking again; nothing when waiting longer does not help. */
  moved({ progress, retryAfter = INTERVAL_SECONDS }: Preparing): number | undefined {
    const now = Date.now();
    if (progress.changedAt !== this.#changedAt) [this.#changedAt, this.#movedAt] = [progress.changedAt, now];
    if (typeof this.#onProgress === "function") this.#onProgress(progress);
    else if (this.#onProgress !== false) {
      this.#line ??= StatusLine.open();
      this.#line?.show(`preparing ${this.#what}: ${progress.step} (${Math.round((now - this.#begun) / 1000)} s)`);
    }
    if (now + retryAfter * 1000 - this.#movedAt > this.#stallSeconds * 1000) return undefined;
    if (now + retryAfter * 1000 - this.#begun > this.#waitSeconds * 1000) return undefined;
    return retryAfter;
  }

  /** Clears what was shown. */
  end(): void {
    this.#line?.close();
    this.#line = undefined;
  }
}

interface Terminal {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

/** A line of standard error that is written again and again. Several requests share it: the newest text is what is seen. */
class StatusLine {
  static #open = 0;
  readonly #terminal: Terminal;

  private constructor(terminal: Terminal) {
    this.#terminal = terminal;
    StatusLine.#open += 1;
  }

  /** A line, where standard error is a terminal that can write over what it shows. */
  static open(): StatusLine | undefined {
    const { process } = globalThis as { process?: { stderr?: Terminal; env?: Record<string, string | undefined> } };
    if (process?.stderr?.isTTY !== true || process.env?.["TERM"] === "dumb") return undefined;
    return new StatusLine(process.stderr);
  }

  show(text: string): void {
    // The text is the server's: control characters would reach the terminal.
    const clean = text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
    this.#terminal.write(`\r\u001b[K${clean.slice(0, Math.max(20, (this.#terminal.columns ?? 80) - 1))}`);
  }

  close(): void {
    StatusLine.#open -= 1;
    if (StatusLine.#open === 0) this.#terminal.write("\r\u001b[K");
  }
}

/** Best of N: the same sandbox tried several ways at once. */

import { ExploreError, PandaStackError, SandboxTimeout } from "./errors.js";
import type { Sandbox } from "./sandbox.js";
import { each } from "./transfer.js";

/** One way to go on: a command, or a function that drives its sandbox. */
export interface Candidate {
  /** What it is called. */
  label: string;
  /** A line for the shell. */
  cmd?: string | undefined;
  /** What to do instead, with a sandbox of its own. */
  fn?: ((sandbox: Sandbox) => unknown) | undefined;
  /** After this long the command is killed; a minute when absent. */
  timeoutSeconds?: number | undefined;
  /** The same as `timeoutSeconds`. */
  timeoutS?: number | undefined;
  /** Variables of the command. */
  env?: Record<string, string> | undefined;
  /** Its score, when it is known before. */
  score?: number | undefined;
}

/** How a candidate did. */
export interface BranchOutcome {
  label: string;
  sandboxId: string;
  /** Whether the command exited with 0, or the function did not throw. */
  ok: boolean;
  score: number;
  /** The command's exit code. */
  exitCode: number | null;
  /** The end of what it wrote. */
  stdoutTail: string;
  /** The end of what it wrote to standard error. */
  stderrTail: string;
  /** Files that it wrote. */
  filesChanged: string[];
  durationMs: number;
  /** What the function returned. */
  value?: unknown;
  /** Why it could not be run to its end. */
  error: string | null;
  timedOut: boolean;
  /** Where it ran. */
  readonly sandbox: Sandbox;
}

/** How to explore. */
export interface ExploreOptions {
  /** Scores an outcome; success is 1 and failure 0 when absent. */
  scoreFn?: ((sandbox: Sandbox, outcome: BranchOutcome) => number | Promise<number>) | undefined;
  /** Which score wins, or a function that chooses; the highest when absent. */
  select?: "max" | "min" | ((outcomes: BranchOutcome[]) => BranchOutcome) | undefined;
  /** Whether a candidate that failed can win; not, when absent. */
  requireSuccess?: boolean | undefined;
  /** Candidates run at the same time; 4 when absent. */
  maxConcurrency?: number | undefined;
  /** Whether the others are deleted; they are, when absent. */
  cleanupLosers?: boolean | undefined;
  /** Whether the winner is promoted; it is, when absent. */
  promoteWinner?: boolean | undefined;
  /** Whether to find out which files changed, or below which directories; below the usual ones when absent. */
  captureFiles?: boolean | string | undefined;
  /** After this long the server deletes branches that were left behind; ten minutes when absent. */
  ttlSeconds?: number | undefined;
  /** Called with each outcome as it comes. */
  onOutcome?: ((outcome: BranchOutcome) => void) | undefined;
}

/** What came out of it. */
export interface ExploreResult {
  /** The sandbox that stays. */
  winner: Sandbox;
  winnerOutcome: BranchOutcome;
  /** All outcomes, the best first. */
  outcomes: BranchOutcome[];
  /** Names the branches together. */
  treeId: string;
  /** Sandboxes that were deleted. */
  reaped: string[];
  /** Sandboxes that could not be deleted, and why. */
  reapFailures: Record<string, string>;
  /** What went wrong on the way without stopping it. */
  errors: string[];
}

const CANDIDATES_MAX = 16;
const CONCURRENCY = 4;
const TTL_SECONDS = 600;
const TIMEOUT_SECONDS = 60;
const TAIL_CHARACTERS = 4096;
const LOOK_TIMEOUT_SECONDS = 30;
const MARKER = "/tmp/.pandastack-explore-marker";
const WATCHED = "/app /work /workspace /root /home";

/** Runs every candidate in a fork of its own and keeps the best. */
export async function explore(
  parent: Sandbox,
  given: readonly (Candidate | string)[],
  options: ExploreOptions = {},
): Promise<ExploreResult> {
  const candidates = given.map((one) => (typeof one === "string" ? { label: one, cmd: one } : one));
  if (candidates.length === 0) throw new ExploreError("there is nothing to explore: no candidates");
  if (candidates.length > CANDIDATES_MAX) {
    throw new ExploreError(`${candidates.length} candidates are more than ${CANDIDATES_MAX}: explore in rounds`);
  }
  for (const one of candidates) {
    if (one.cmd === undefined && one.fn === undefined) {
      throw new ExploreError(`candidate ${JSON.stringify(one.label)} has neither cmd nor fn`);
    }
  }
  const { select = "max", requireSuccess = true, cleanupLosers = true, promoteWinner = true } = options;
  const ttlSeconds = Math.floor(options.ttlSeconds ?? TTL_SECONDS);
  const children = await parent.forkTree({
    count: candidates.length,
    metadata: { explore: "1", explore_ttl: String(ttlSeconds) },
  });
  const errors = children.errors.map(({ index, err }) => `branch ${index} was not made: ${err}`);
  const outcomes: BranchOutcome[] = [];
  try {
    await each(children, { concurrency: options.maxConcurrency ?? CONCURRENCY }, async (child, index) => {
      const outcome = await branch(child, candidates[index] as Candidate, options);
      outcomes.push(outcome);
      options.onOutcome?.(outcome);
    });
    const sign = select === "min" ? 1 : -1;
    // Where the least wins, the score 0 of a branch that failed would be the best.
    const failed = ({ ok }: BranchOutcome): number => Number(requireSuccess && !ok);
    outcomes.sort(
      (a, b) => failed(a) - failed(b) || sign * (a.score - b.score) || a.durationMs - b.durationMs,
    );
    const viable = outcomes.filter(({ ok }) => ok || !requireSuccess);
    const chosen = typeof select === "function" && viable.length > 0 ? select(viable) : viable[0];
    if (chosen === undefined) {
      const why = outcomes.map((one) => `${one.label}: ${one.error ?? `exit code ${one.exitCode}`}`).join("; ");
      throw new ExploreError(`no candidate succeeded (${why})`);
    }
    const losers = children.filter(({ id }) => id !== chosen.sandboxId);
    const result: ExploreResult = {
      winner: chosen.sandbox,
      winnerOutcome: chosen,
      outcomes,
      treeId: children.treeId,
      reaped: [],
      reapFailures: {},
      errors,
    };
    let promoted = false;
    if (promoteWinner) {
      const treeId = children.treeId || undefined;
      try {
        const { deleted, failures } = await chosen.sandbox.promote({ cleanupSiblings: cleanupLosers, treeId });
        result.reaped.push(...(deleted ?? []));
        Object.assign(result.reapFailures, failures);
        promoted = true;
      } catch (error) {
        // The winner is there all the same.
        errors.push(`the winner could not be promoted: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    if (cleanupLosers && !promoted) Object.assign(result.reapFailures, await reap(losers, result.reaped));
    return result;
  } catch (error) {
    // The caller never learns of the branches.
    await reap(children, []);
    throw error;
  }
}

async function reap(children: readonly Sandbox[], reaped: string[]): Promise<Record<string, string>> {
  const failures: Record<string, string> = {};
  await each(children, { concurrency: CONCURRENCY }, async (child) => {
    try {
      await child.delete();
      reaped.push(child.id);
    } catch (error) {
      failures[child.id] = String(error);
    }
  });
  return failures;
}

async function branch(sandbox: Sandbox, candidate: Candidate, options: ExploreOptions): Promise<BranchOutcome> {
  const { label, cmd, fn, env } = candidate;
  const captured = options.captureFiles ?? true;
  const outcome: BranchOutcome = {
    label,
    sandboxId: sandbox.id,
    ok: false,
    score: 0,
    exitCode: null,
    stdoutTail: "",
    stderrTail: "",
    filesChanged: [],
    durationMs: 0,
    error: null,
    timedOut: false,
    sandbox,
  };
  // Consoles need not print whole clients.
  Object.defineProperty(outcome, "sandbox", { enumerable: false });
  if (captured !== false) {
    await sandbox.exec(`touch ${MARKER}`, { timeoutSeconds: LOOK_TIMEOUT_SECONDS }).catch(() => undefined);
  }
  const begun = performance.now();
  try {
    if (fn !== undefined) {
      outcome.value = await fn(sandbox);
      outcome.ok = true;
    } else {
      const timeoutSeconds = candidate.timeoutSeconds ?? candidate.timeoutS ?? TIMEOUT_SECONDS;
      const ended = await sandbox.exec(cmd ?? "", { timeoutSeconds, env });
      outcome.exitCode = ended.exitCode;
      outcome.stdoutTail = ended.stdout.slice(-TAIL_CHARACTERS);
      outcome.stderrTail = ended.stderr.slice(-TAIL_CHARACTERS);
      outcome.ok = ended.exitCode === 0;
    }
  } catch (error) {
    outcome.error = error instanceof Error ? error.message : String(error);
    if (error instanceof SandboxTimeout) {
      outcome.timedOut = true;
      outcome.stdoutTail = error.stdout.slice(-TAIL_CHARACTERS);
      outcome.stderrTail = error.stderr.slice(-TAIL_CHARACTERS);
    }
  }
  outcome.durationMs = Math.round(performance.now() - begun);
  if (captured !== false && outcome.ok) {
    const roots = typeof captured === "string" ? captured : WATCHED;
    const find = `find ${roots} -type f -newer ${MARKER} 2>/dev/null | head -n 200`;
    const found = await sandbox.exec(find, { timeoutSeconds: LOOK_TIMEOUT_SECONDS }).catch(() => undefined);
    outcome.filesChanged = found?.stdout.split("\n").filter((line) => line !== "") ?? [];
  }
  await score(sandbox, candidate, outcome, options);
  return outcome;
}

async function score(
  sandbox: Sandbox,
  candidate: Candidate,
  outcome: BranchOutcome,
  { scoreFn }: ExploreOptions,
): Promise<void> {
  outcome.score = outcome.ok ? 1 : 0;
  if (candidate.score !== undefined) outcome.score = candidate.score;
  else if (scoreFn !== undefined) {
    try {
      outcome.score = await scoreFn(sandbox, outcome);
      if (Number.isNaN(outcome.score)) throw new PandaStackError("the score is not a number");
    } catch (error) {
      // What cannot be scored cannot win.
      outcome.ok = false;
      outcome.score = 0;
      outcome.error ??= `scoring failed: ${error instanceof Error ? error.message : String(error)}`;
    }
  }
}

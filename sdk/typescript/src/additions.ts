/**
 * Wire types that `generated.ts` may not have yet.
 *
 * Each is written so that it stays right when the generated type gains the same members: what stands here comes first.
 */

import type * as wire from "./generated.js";

/** `Base` with the members of `More` instead of its own of the same names. */
type With<Base, More> = Omit<Base, keyof More> & More;

/** How far the preparation of a template is. */
export interface TemplateProgress {
  /** What is being done, such as `installing packages: 41 of 130`. */
  readonly step: string;
  /** When the work began (RFC 3339). */
  readonly startedAt: string;
  /** When `step` last changed (RFC 3339). While it moves, waiting helps. */
  readonly changedAt: string;
}

/** What a command or code wrote before its time was up, on the wire. */
export interface PartialOutput {
  readonly stdout?: string;
  readonly stderr?: string;
  readonly truncated?: boolean;
  readonly results?: Record<string, string>[];
}

/** A volume of a sandbox. */
export interface AttachedVolume extends With<wire.AttachedVolume, { readonly mount?: string }> {}

interface MoreOfSandbox {
  /** The name its owner gave it, which stands wherever an id does. */
  readonly name?: string;
  /** Size of its root disk in GiB. */
  readonly diskGb?: number;
  /** @deprecated Use `diskGb`. */
  readonly disk_gb?: number;
  /** The sandboxes it comes from, deleted ones included: the oldest first, the nearest last. */
  readonly ancestors?: readonly string[];
  /** Seconds until it has idled for `ttlSeconds`; absent when it sleeps or the limit does not apply to it now. */
  readonly idleSecondsLeft?: number;
  /** @deprecated Use `idleSecondsLeft`. */
  readonly idle_seconds_left?: number;
  /** Volumes, in the order of their devices. */
  readonly volumes: AttachedVolume[];
  /** What the caller should know about what was asked for; in answers to create and update only. */
  readonly warnings?: readonly string[];
}

/** A sandbox, as the server describes it. */
export interface SandboxInfo extends With<wire.SandboxInfo, MoreOfSandbox> {}

/** A volume to attach. */
export type VolumeRequest = With<wire.VolumeRequest, { mount?: string | undefined }>;

interface MoreToCreate {
  name?: string | undefined;
  cpu?: number | undefined;
  memory_mb?: number | undefined;
  volumes?: VolumeRequest[] | undefined;
}

/** A sandbox to make. */
export type CreateSandbox = With<wire.CreateSandbox, MoreToCreate>;

/** A change of a sandbox. */
export type PatchSandbox = With<wire.PatchSandbox, { name?: string | null | undefined }>;

/** A command to run. */
export type ExecRequest = With<wire.ExecRequest, { cmd?: string | readonly string[] | undefined }>;

/** Who is calling. */
export interface MeInfo
  extends With<
    wire.MeInfo,
    {
      /** What the workspace's sandboxes reach when `network` is absent; the operator's default when absent. */
      readonly networkDefault?: wire.NetworkMode;
      /** @deprecated Use `networkDefault`. */
      readonly network_default?: wire.NetworkMode;
    }
  > {}

/** A cell to run. */
export type RunCell = With<wire.RunCell, { language?: string | undefined }>;

/** What a cell did. */
export type CellAnswer = With<wire.CellAnswer, { readonly contextId?: string }>;

/** A sandbox that another comes from. */
export interface Ancestor {
  readonly id: string;
  /** The name its owner gave it. */
  readonly name?: string;
  /** What it is doing; `deleted` when it is gone. */
  readonly status: wire.SandboxStatus;
}

/** A sandbox in a tree. */
export interface TreeNode extends Ancestor {
  /** The template it was made from; absent when it is gone. */
  readonly template?: string;
  /** When it was made (RFC 3339); absent when it is gone. */
  readonly createdAt?: string;
  /** Its place among the children of its fork. */
  readonly forkIndex?: number;
  /** Those that come from it directly, the oldest first. */
  readonly children: TreeNode[];
}

/** A snapshot of a sandbox in a tree. */
export interface TreeSnapshot {
  readonly id: string;
  /** The sandbox it was taken of. */
  readonly sandboxId: string;
  /** When it was taken (RFC 3339). */
  readonly createdAt: string;
}

/** A sandbox with all its relatives. */
export interface SandboxTree {
  /** The oldest sandbox that is known, where `tree` begins. */
  readonly root: string;
  /** Where the sandbox that was asked for comes from, the oldest first. */
  readonly ancestors: Ancestor[];
  /** The root and all that come from it. Deleted ones are in it where something that exists comes from them. */
  readonly tree: TreeNode;
  /** Snapshots of sandboxes in the tree, newest first. */
  readonly snapshots: TreeSnapshot[];
}

/** What became of sandboxes that were to be deleted. */
export interface DeletedSandboxes {
  /** Ids of those that are gone. */
  readonly deleted: string[];
  /** Ids of those that could not be deleted, and why. */
  readonly failures: Record<string, string>;
}

/** A signed URL for one file: it works without a key until it expires. */
export interface SignedUrl {
  readonly url: string;
  /** How to use it: `GET` reads the file, `PUT` writes it. */
  readonly method: "GET" | "PUT";
  readonly path: string;
  /** When it stops working (RFC 3339). */
  readonly expiresAt: string;
}

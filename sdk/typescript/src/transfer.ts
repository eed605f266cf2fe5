/** Files and directories between this machine and a sandbox. */

import { ConflictError, PandaStackError } from "./errors.js";
import type { Filesystem } from "./filesystem.js";
import { builtin } from "./node.js";

/** How far a transfer is. */
export interface TransferProgress {
  /** The file under way, as it is called on this machine. */
  readonly path: string;
  /** Bytes moved so far, of all files. */
  readonly bytes: number;
  /** Bytes there are to move. */
  readonly totalBytes: number;
  /** Files that are done. */
  readonly files: number;
  /** Files there are. */
  readonly totalFiles: number;
}

/** How files are moved. */
export interface TransferOptions {
  /** Called as bytes move. */
  onProgress?: ((progress: TransferProgress) => void) | undefined;
  /** Files moved at the same time; 4 when absent. */
  concurrency?: number | undefined;
  /** Ends the transfer. Files that are done stay. */
  signal?: AbortSignal | undefined;
}

/** What was moved. */
export interface TransferResult {
  /** Where it is now. */
  readonly path: string;
  /** Bytes moved. */
  readonly bytes: number;
  /** Files moved. */
  readonly files: number;
  /** Symbolic links made. */
  readonly links: number;
  /** What was left out: devices, sockets, and symbolic links that lead out of a directory that is fetched. */
  readonly skipped: readonly string[];
}

const CONCURRENCY = 4;
const READ_BYTES = 256 * 1024;

/** One file on its way. */
interface Item {
  local: string;
  remote: string;
  size: number;
  executable: boolean;
}

/** Sends a local file or directory. */
export async function uploadFrom(
  filesystem: Filesystem,
  local: string,
  remote: string,
  options: TransferOptions,
): Promise<TransferResult> {
  const fs = await builtin("node:fs/promises");
  const path = await builtin("node:path");
  const { signal } = options;
  const [items, directories, skipped]: [Item[], string[], string[]] = [[], [], []];
  const links: [path: string, target: string][] = [];

  const top = await fs.stat(local);
  const item = (at: string, to: string, stat: { size: number; mode: number }): Item => ({
    local: at,
    remote: to,
    size: stat.size,
    executable: (stat.mode & 0o111) !== 0,
  });
  const gather = async (directory: string, to: string): Promise<void> => {
    signal?.throwIfAborted();
    const entries = await fs.readdir(directory, { withFileTypes: true });
    // Those with something in them are made with it.
    if (entries.length === 0) directories.push(to);
    for (const entry of entries) {
      const [at, child] = [path.join(directory, entry.name), `${to.replace(/\/+$/, "")}/${entry.name}`];
      if (entry.isDirectory()) await gather(at, child);
      else if (entry.isFile()) items.push(item(at, child, await fs.stat(at)));
      else if (entry.isSymbolicLink()) links.push([child, await fs.readlink(at)]);
      else skipped.push(at);
    }
  };
  if (top.isDirectory()) await gather(local, remote);
  else items.push(item(local, remote, top));

  const progress = new Progress(items, options);
  for (const directory of directories) {
    await filesystem.mkdir(directory, { signal }).catch(async (error: unknown) => {
      // From an earlier upload, perhaps.
      const there = error instanceof ConflictError && (await filesystem.stat(directory, { signal })).isDir;
      if (!there) throw error;
    });
  }
  await each(items, options, async (one) => {
    const file = await fs.open(one.local, "r");
    try {
      const pieces = async function* () {
        for (;;) {
          const { bytesRead, buffer } = await file.read(new Uint8Array(READ_BYTES), 0, READ_BYTES);
          if (bytesRead === 0) return;
          progress.moved(one, bytesRead);
          yield buffer.subarray(0, bytesRead);
        }
      };
      // Small ones go in one piece, so that they can be sent again.
      const content = one.size <= READ_BYTES ? await file.readFile() : pieces();
      await filesystem.write(one.remote, content, { signal });
      if (one.size <= READ_BYTES) progress.moved(one, (content as Uint8Array).length);
    } finally {
      await file.close();
    }
    if (one.executable) await filesystem.chmod(one.remote, "0755", { signal });
    progress.done(one);
  });
  await filesystem.link(links, { signal });
  return progress.result(remote, links.length, skipped);
}

/** Fetches a file or directory. */
export async function downloadTo(
  filesystem: Filesystem,
  remote: string,
  local: string,
  options: TransferOptions,
): Promise<TransferResult> {
  const fs = await builtin("node:fs/promises");
  const path = await builtin("node:path");
  const { signal } = options;
  const [items, skipped]: [Item[], string[]] = [[], []];
  const links: [path: string, target: string][] = [];
  const top = await filesystem.stat(remote, { signal });
  if (top.isDir) {
    const base = remote.replace(/\/+$/, "");
    const places = new Map([[remote, local]]);
    const depths = new Map([[remote, 0]]);
    for await (const { dir, dirs, files } of filesystem.walk(remote, { signal })) {
      const place = places.get(dir) ?? local;
      const depth = depths.get(dir) ?? 0;
      // Not through a link that an earlier download left here.
      if (depth > 0 && (await isLink(place))) await fs.rm(place);
      await fs.mkdir(place, { recursive: true });
      for (const entry of dirs) {
        places.set(entry.path, path.join(place, safeName(entry.name)));
        depths.set(entry.path, depth + 1);
      }
      for (const entry of files) {
        if (entry.linkTarget !== undefined && staysInside(entry.linkTarget, depth)) {
          links.push([path.join(place, safeName(entry.name)), entry.linkTarget]);
        } else if (entry.linkTarget === undefined && entry.mode.startsWith("-")) {
          items.push({
            local: path.join(place, safeName(entry.name)),
            remote: `${dir === remote ? base : dir}/${entry.name}`,
            size: entry.size,
            executable: entry.mode.slice(1, 10).includes("x"),
          });
        } else skipped.push(entry.path);
      }
    }
  } else {
    items.push({ local, remote, size: top.size, executable: top.mode.slice(1, 10).includes("x") });
    await fs.mkdir(path.dirname(path.resolve(local)), { recursive: true });
  }

  const progress = new Progress(items, options);
  await each(items, options, async (one) => {
    // Aside first: a file is there as a whole or not at all, and a symbolic link in its place is not written through.
    const aside = `${one.local}.${Math.random().toString(36).slice(2)}.part`;
    const file = await fs.open(aside, "wx", one.executable ? 0o755 : 0o644);
    try {
      try {
        for await (const bytes of filesystem.readStream(one.remote, { signal })) {
          await file.writeFile(bytes);
          progress.moved(one, bytes.length);
        }
      } finally {
        await file.close();
      }
      await fs.rename(aside, one.local);
    } catch (error) {
      await fs.rm(aside, { force: true });
      throw error;
    }
    progress.done(one);
  });
  // Last, so that nothing is written through them.
  for (const [place, target] of links) {
    signal?.throwIfAborted();
    await fs.rm(place, { force: true });
    await fs.symlink(target, place);
  }
  return progress.result(local, links.length, skipped);
}

/** Whether there is a symbolic link. */
async function isLink(place: string): Promise<boolean> {
  const fs = await builtin("node:fs/promises");
  try {
    return (await fs.lstat(place)).isSymbolicLink();
  } catch {
    return false;
  }
}

/**
 * Whether a symbolic link stays inside a tree, so many directories below its top. What a guest points at is not to be trusted: a
 * program here that follows the link would read or write elsewhere. `..` counts at the beginning only, because further on it
 * may come after another link, and then means another directory.
 */
export function staysInside(target: string, depth: number): boolean {
  if (target.startsWith("/") || /[\\\0]/.test(target)) return false;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const up = parts.findIndex((part) => part !== "..");
  const ups = up < 0 ? parts.length : up;
  return ups <= depth && !parts.slice(ups).includes("..");
}

/** A name from a guest, which may be anything: it must stay in its directory. */
export function safeName(name: string): string {
  if (name === "" || name === "." || name === ".." || /[/\\\0]/.test(name)) {
    throw new PandaStackError(`the sandbox has a file that cannot be stored here: ${JSON.stringify(name)}`);
  }
  return name;
}

class Progress {
  #bytes = 0;
  #totalBytes: number;
  #files = 0;

  constructor(
    readonly items: readonly Item[],
    readonly options: TransferOptions,
  ) {
    this.#totalBytes = items.reduce((sum, { size }) => sum + size, 0);
  }

  moved(item: Item, bytes: number): void {
    this.#bytes += bytes;
    // Files change; the total does not stay behind.
    this.#totalBytes = Math.max(this.#totalBytes, this.#bytes);
    this.#tell(item);
  }

  done(item: Item): void {
    this.#files += 1;
    this.#tell(item);
  }

  result(path: string, links: number, skipped: string[]): TransferResult {
    return { path, bytes: this.#bytes, files: this.#files, links, skipped };
  }

  #tell({ local: path }: Item): void {
    this.options.onProgress?.({
      path,
      bytes: this.#bytes,
      totalBytes: this.#totalBytes,
      files: this.#files,
      totalFiles: this.items.length,
    });
  }
}

/** Does something for each, a few at a time. The first failure ends it, once what is under way is over. */
export async function each<T>(
  items: readonly T[],
  options: { concurrency?: number | undefined; signal?: AbortSignal | undefined },
  work: (item: T, index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  let failed = false;
  const worker = async (): Promise<void> => {
    while (!failed && next < items.length) {
      const index = next++;
      try {
        options.signal?.throwIfAborted();
        await work(items[index] as T, index);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = Math.max(1, Math.min(options.concurrency ?? CONCURRENCY, items.length));
  const ended = await Promise.allSettled(Array.from({ length: workers }, worker));
  for (const one of ended) if (one.status === "rejected") throw one.reason;
}

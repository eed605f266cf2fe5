/** Files of a sandbox. */

import type { SignedUrl } from "./additions.js";
import { NotFoundError, PandaStackError } from "./errors.js";
import { exec } from "./exec.js";
import type { DirectoryListing, FileChange, FileInfo, FileWritten } from "./generated.js";
import { readBytes } from "./sse.js";
import { downloadTo, uploadFrom, type TransferOptions, type TransferResult } from "./transfer.js";
import { at, type Transport } from "./transport.js";
import { view } from "./view.js";
import { FileWatcher, type WatchOptions } from "./watch.js";

/** What can be written to a file. */
export type FileContent =
  | string
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** Limits of one call. */
export interface FileOptions {
  /** Ends the request. */
  signal?: AbortSignal | undefined;
}

/** How a URL of a file is signed. */
export interface SignOptions extends FileOptions {
  /** How long it works; an hour when absent, a week at most. */
  expiresInSeconds?: number | undefined;
}

/** A directory on a walk. */
export interface WalkStep {
  /** Its path. */
  dir: string;
  /** The directories in it. */
  dirs: FileInfo[];
  /** Everything else in it, symbolic links included. */
  files: FileInfo[];
}

const HOME_TIMEOUT_SECONDS = 30;
const LINKS_TIMEOUT_SECONDS = 60;
const LINKS_AT_ONCE = 100;

/**
 * Files of a sandbox. Paths that do not begin with `/` are below the home directory of the guest's user, which is `/root`; `~` stands
 * for that directory too.
 *
 * @example
 * ```ts
 * await sandbox.filesystem.write("/workspace/hello.txt", "hello");
 * console.log(await sandbox.filesystem.read("/workspace/hello.txt"));
 * await sandbox.filesystem.upload("./project", "/workspace/project");
 * ```
 */
export class Filesystem {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  #home: Promise<string> | undefined;

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
  }

  /** A file as text, with U+FFFD for bytes that are not UTF-8. For anything else, see `readBytes`. */
  async read(path: string, options: FileOptions = {}): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.readBytes(path, options));
  }

  /** A file as it is. */
  async readBytes(path: string, options: FileOptions = {}): Promise<Uint8Array> {
    const response = await this.#open(path, options);
    try {
      return new Uint8Array(await response.arrayBuffer());
    } catch (cause) {
      throw new PandaStackError(`reading ${path} broke off`, { cause });
    }
  }

  /** A file piece by piece, for those that are too large to hold. */
  async *readStream(path: string, options: FileOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const { body } = await this.#open(path, options);
    if (body !== null) yield* readBytes(body);
  }

  /** Writes a file, as a whole or not at all. Missing directories are made. Streams are sent as they come. */
  async write(path: string, content: FileContent, options: FileOptions = {}): Promise<FileWritten> {
    const answer = await this.#transport.request(
      "PUT",
      this.#path(),
      {
        query: { path: await this.#absolute(path) },
        body: bodyOf(content),
        headers: { "content-type": "application/octet-stream" },
        // How long it takes is a matter of its size.
        timeoutMs: 0,
        signal: options.signal,
      },
      "warmup",
    );
    return view<FileWritten>(answer);
  }

  /** What is in a directory, by name. */
  async list(path = "/", options: FileOptions = {}): Promise<FileInfo[]> {
    const directory = await this.#absolute(path);
    const request = { query: { path: directory }, signal: options.signal };
    const listing = view<DirectoryListing>(await this.#transport.request("GET", this.#path("dir"), request, "warmup"));
    return (listing.entries ?? []).map((entry) => placed(entry, directory));
  }

  /** One file's metadata. Throws `NotFoundError` when there is none. */
  async stat(path: string, options: FileOptions = {}): Promise<FileInfo> {
    const query = { path: await this.#absolute(path) };
    const answer = await this.#transport.request("GET", this.#path("stat"), { query, signal: options.signal }, "warmup");
    return view<FileInfo>({ ...query, ...(answer as object) });
  }

  /** Whether there is such a file or directory. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  }

  /** A directory and all below it, from the top down. Symbolic links are not followed. */
  async *walk(path = "/", options: FileOptions = {}): AsyncGenerator<WalkStep, void, undefined> {
    const entries = await this.list(path, options);
    const enters = (entry: FileInfo) => entry.isDir && entry.linkTarget === undefined;
    const dirs = entries.filter(enters);
    yield { dir: path, dirs, files: entries.filter((entry) => !enters(entry)) };
    for (const entry of dirs) yield* this.walk(entry.path, options);
  }

  /** Makes a directory, with its parents. `mode` is octal, such as `"0755"`. */
  async mkdir(path: string, options: FileOptions & { mode?: string } = {}): Promise<void> {
    await this.#change("mkdir", { path: await this.#absolute(path), mode: options.mode }, options);
  }

  /** Removes a file, or a directory with everything in it. */
  async remove(path: string, options: FileOptions = {}): Promise<void> {
    const query = { path: await this.#absolute(path) };
    await this.#transport.request("DELETE", this.#path(), { query, parseAs: "none", signal: options.signal }, "warmup");
  }

  /** Moves a file or directory. */
  async rename(path: string, to: string, options: FileOptions = {}): Promise<void> {
    await this.#change("move", { path: await this.#absolute(path), to: await this.#absolute(to) }, options);
  }

  /** Sets permission bits, in octal, such as `"0755"`. */
  async chmod(path: string, mode: string, options: FileOptions = {}): Promise<void> {
    await this.#change("chmod", { path: await this.#absolute(path), mode }, options);
  }

  /** Sends a local file, or a directory with everything in it. Symbolic links in a directory stay links. */
  async upload(localPath: string, path: string, options: TransferOptions = {}): Promise<TransferResult> {
    return uploadFrom(this, localPath, await this.#absolute(path), options);
  }

  /**
   * Fetches a file, or a directory with everything in it. Symbolic links in a directory stay links, unless they lead out of it: those
   * are in `skipped`, because what a guest points at is not to be trusted here.
   */
  async download(path: string, localPath: string, options: TransferOptions = {}): Promise<TransferResult> {
    return downloadTo(this, await this.#absolute(path), localPath, options);
  }

  /**
   * Tells of changes below a path as they happen. It begins at once: await `ready` before changing something that must be seen.
   *
   * @example
   * ```ts
   * for await (const { kind, path } of sandbox.files.watch("/workspace", { recursive: true })) console.log(kind, path);
   * ```
   */
  watch(path: string, options: WatchOptions = {}): FileWatcher {
    return new FileWatcher(this.#transport, this.#path("watch"), this.#absolute(path), options);
  }

  /** A URL that gives the file to everybody who has it, without a key, until it expires. */
  async downloadUrl(path: string, options: SignOptions = {}): Promise<string> {
    return (await this.signUrl(path, "read", options)).url;
  }

  /** A URL that a file can be sent to with `PUT`, without a key, until it expires. */
  async uploadUrl(path: string, options: SignOptions = {}): Promise<string> {
    return (await this.signUrl(path, "write", options)).url;
  }

  /** A URL that reads or writes one file without a key, and what there is to know about it. */
  async signUrl(path: string, operation: "read" | "write", options: SignOptions = {}): Promise<SignedUrl> {
    const { expiresInSeconds, signal } = options;
    const json = { path: await this.#absolute(path), operation, expires_in_seconds: expiresInSeconds };
    const signed = view<SignedUrl>(await this.#transport.request("POST", this.#path("sign"), { json, signal }));
    // A server that does not know its own address gives a path.
    return Object.assign(signed, { url: this.#transport.absolute(signed.url) });
  }

  /** @internal Makes symbolic links: from what they are called to where they lead. */
  async link(links: readonly (readonly [path: string, target: string])[], options: FileOptions = {}): Promise<void> {
    const script =
      'while [ $# -gt 0 ]; do mkdir -p -- "$(dirname -- "$1")" && { [ -L "$1" ] || [ ! -d "$1" ] || rmdir -- "$1"; } && ' +
      'ln -sfn -- "$2" "$1" || exit 1; shift 2; done';
    for (let at = 0; at < links.length; at += LINKS_AT_ONCE) {
      const words = links.slice(at, at + LINKS_AT_ONCE).flat();
      const how = { check: true, timeoutSeconds: LINKS_TIMEOUT_SECONDS, signal: options.signal };
      await exec(this.#transport, this.#sandboxId, ["sh", "-c", script, "sh", ...words], how);
    }
  }

  async #open(path: string, options: FileOptions): Promise<Response> {
    const request = {
      query: { path: await this.#absolute(path) },
      headers: { accept: "application/octet-stream" },
      signal: options.signal,
    };
    return this.#transport.open("GET", this.#path(), request, "warmup");
  }

  /** A path from the root. The guest is asked where its home is once; an empty path is for the server to refuse. */
  async #absolute(path: string): Promise<string> {
    if (path === "" || path.startsWith("/")) return path;
    this.#home ??= exec(this.#transport, this.#sandboxId, "echo ~", { timeoutSeconds: HOME_TIMEOUT_SECONDS }).then(({ stdout }) => {
      const home = stdout.trim();
      if (!home.startsWith("/")) throw new PandaStackError(`the sandbox does not tell where its home directory is: ${stdout}`);
      return home.replace(/\/+$/, "");
    });
    try {
      const home = await this.#home;
      const below = path.replace(/^~(?=\/|$)/, ".").replace(/^(\.\/+)+/, "");
      return below === "" || below === "." ? home || "/" : `${home}/${below}`;
    } catch (error) {
      this.#home = undefined;
      throw error;
    }
  }

  async #change(what: string, body: FileChange, options: FileOptions): Promise<void> {
    const request = { json: body, parseAs: "none", signal: options.signal } as const;
    await this.#transport.request("POST", this.#path(what), request, "warmup");
  }

  #path(...rest: string[]): string {
    return at("sandboxes", this.#sandboxId, "fs", ...rest);
  }
}

/** An entry with its path, for servers that leave it out. */
function placed(entry: FileInfo, directory: string): FileInfo {
  return entry.path ? entry : Object.assign(entry, { path: `${directory.replace(/\/+$/, "")}/${entry.name}` });
}

function bodyOf(content: FileContent): BodyInit {
  if (typeof content === "string") return new TextEncoder().encode(content);
  if (content instanceof ReadableStream || content instanceof ArrayBuffer || content instanceof Blob) return content;
  if (ArrayBuffer.isView(content)) return content as Uint8Array<ArrayBuffer>;
  const pieces = content[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await pieces.return?.();
    },
  });
}

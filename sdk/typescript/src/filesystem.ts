/** Files of a sandbox. */

import { NotFoundError, PandaStackError } from "./errors.js";
import type { DirectoryListing, FileChange, FileInfo, FileWritten } from "./generated.js";
import { readBytes } from "./sse.js";
import { downloadTo, uploadFrom, type TransferOptions, type TransferResult } from "./transfer.js";
import { at, type Transport } from "./transport.js";
import { view } from "./view.js";

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

/** A directory on a walk. */
export interface WalkStep {
  /** Its path. */
  dir: string;
  /** The directories in it. */
  dirs: FileInfo[];
  /** Everything else in it, symbolic links included. */
  files: FileInfo[];
}

/**
 * Files of a sandbox. Paths are absolute.
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
        query: { path },
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
    const listing = view<DirectoryListing>(
      await this.#transport.request("GET", this.#path("dir"), { query: { path }, signal: options.signal }, "warmup"),
    );
    return (listing.entries ?? []).map((entry) => placed(entry, path));
  }

  /** One file's metadata. Throws `NotFoundError` when there is none. */
  async stat(path: string, options: FileOptions = {}): Promise<FileInfo> {
    const query = { path };
    const answer = await this.#transport.request("GET", this.#path("stat"), { query, signal: options.signal }, "warmup");
    return view<FileInfo>({ path, ...(answer as object) });
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
    await this.#change("mkdir", { path, mode: options.mode }, options);
  }

  /** Removes a file, or a directory with everything in it. */
  async remove(path: string, options: FileOptions = {}): Promise<void> {
    await this.#transport.request("DELETE", this.#path(), { query: { path }, parseAs: "none", signal: options.signal }, "warmup");
  }

  /** Moves a file or directory. */
  async rename(path: string, to: string, options: FileOptions = {}): Promise<void> {
    await this.#change("move", { path, to }, options);
  }

  /** Sets permission bits, in octal, such as `"0755"`. */
  async chmod(path: string, mode: string, options: FileOptions = {}): Promise<void> {
    await this.#change("chmod", { path, mode }, options);
  }

  /** Sends a local file, or a directory with everything in it. */
  async upload(localPath: string, path: string, options: TransferOptions = {}): Promise<TransferResult> {
    return uploadFrom(this, localPath, path, options);
  }

  /** Fetches a file, or a directory with everything in it. */
  async download(path: string, localPath: string, options: TransferOptions = {}): Promise<TransferResult> {
    return downloadTo(this, path, localPath, options);
  }

  #open(path: string, options: FileOptions): Promise<Response> {
    const headers = { accept: "application/octet-stream" };
    return this.#transport.open("GET", this.#path(), { query: { path }, headers, signal: options.signal }, "warmup");
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

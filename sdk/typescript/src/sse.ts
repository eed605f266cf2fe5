/** Server-sent events. */

/** One event of a stream. */
export interface ServerEvent {
  /** Its name; `message` when it has none. */
  event: string;
  /** Its data. */
  data: string;
}

/**
 * Splits a stream of bytes into events.
 *
 * Follows the rules of the format: any line ending, comments skipped, several `data:` lines joined. An event that the stream ends
 * in the middle of is dropped, so a caller never sees half of one.
 */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  let event = "";
  let data: string[] = [];
  for await (const line of readLines(body)) {
    if (line === "") {
      if (data.length > 0) yield { event: event || "message", data: data.join("\n") };
      event = "";
      data = [];
      continue;
    }
    if (line.startsWith(":")) continue;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
}

/** Complete lines of a stream of UTF-8, without their ends. */
async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let kept = "";
  for await (const bytes of readBytes(body)) {
    kept += decoder.decode(bytes, { stream: true });
    let start = 0;
    for (;;) {
      const end = lineEnd(kept, start);
      if (end === undefined) break;
      yield kept.slice(start, end.at);
      start = end.next;
    }
    kept = kept.slice(start);
  }
}

/** Where the line ends that starts here, if it does. A CR at the very end may be half of a CRLF. */
function lineEnd(text: string, start: number): { at: number; next: number } | undefined {
  for (let at = start; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === 10) return { at, next: at + 1 };
    if (char === 13) {
      if (at + 1 === text.length) return undefined;
      return { at, next: text.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
    }
  }
  return undefined;
}

/** The chunks of a stream. Leaving the loop cancels the stream, which closes its connection. */
export async function* readBytes(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = body.getReader();
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        ended = true;
        return;
      }
      yield value;
    }
  } catch (error) {
    ended = true;
    throw error;
  } finally {
    if (!ended) await reader.cancel().catch(() => undefined);
    reader.releaseLock();
  }
}

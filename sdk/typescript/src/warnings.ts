/** What the server warns of. */

const told = new Set<string>();
const TOLD_MAX = 1000;

/** Tells each warning once: as a warning of the process in Node.js, on the console elsewhere. */
export function warn(warnings: readonly string[] | undefined): void {
  for (const text of warnings ?? []) {
    if (told.has(text)) continue;
    // Texts may name sandboxes: a program that runs for months forgets the old ones.
    if (told.size >= TOLD_MAX) told.clear();
    told.add(text);
    const { process } = globalThis as { process?: { emitWarning?: (text: string, type: string) => void } };
    if (typeof process?.emitWarning === "function") process.emitWarning(text, "PandaStackWarning");
    else console.warn(`PandaStackWarning: ${text}`);
  }
}

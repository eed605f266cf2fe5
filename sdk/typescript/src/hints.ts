/** Hints of the server with calls of this package: the server speaks of fields and requests, which its clients call otherwise. */

const BACKGROUND = "raise `timeoutSeconds`, or run it in the background: sandbox.processes.start(…)";
const COLD = "its files are kept; start it from its disk: sandbox.wake({ cold: true })";

/** Whole hints, and what they are here. */
const HINTS = new Map([
  ["raise the timeout, or run it in the background", BACKGROUND],
  ["raise the timeout, or run it as a process in the background", BACKGROUND],
  ["start it cold, from its disk", COLD],
  ["its files are kept; start it cold, from its disk", COLD],
  ["wake it first", "sandbox.wake()"],
  ["resume it first", "sandbox.resume()"],
  [
    "choose another name, or ask for the old one to be replaced: the new one takes its place when it is done",
    "choose another name, or replace the old one with `replace: true`: the new one takes its place when it is done",
  ],
  ["its owner opens it by adding it to the sandbox's ports", "its owner opens it: sandbox.ports.add(port)"],
  ["send `Authorization: Bearer pds_…`", "set PANDASTACK_API_KEY, or pass apiKey: new PandaStack({ apiKey })"],
  [
    "the routes are described at /docs and /openapi.json",
    "the server may be older than this package: compare the package's version with client.version()",
  ],
  [
    "leave cpu and memory_mb out, or create a sandbox of that size from a template",
    "leave `cpu` and `memoryMb` out, or create a sandbox of that size from a template",
  ],
]);

/** Words within hints. */
const WORDS = [
  [
    'create it with network "all", or open the network of this one',
    'create it with `network: "all"`, or open the network of this one: sandbox.update({ network: "all" })',
  ],
] as const;

/** A hint in the words of this package. */
export function hintHere<T extends string | undefined>(hint: T): T | string {
  if (hint === undefined) return hint;
  return WORDS.reduce((text, [there, here]) => text.replace(there, here), HINTS.get(hint) ?? hint);
}

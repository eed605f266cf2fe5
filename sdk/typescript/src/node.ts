/** Parts of Node.js, where they exist. Nothing here is loaded in a browser, nor by a bundler for one. */

import { PandaStackError } from "./errors.js";

type Builtins = {
  "node:fs": typeof import("node:fs");
  "node:net": typeof import("node:net");
  "node:fs/promises": typeof import("node:fs/promises");
  "node:path": typeof import("node:path");
};

/** A module of Node.js, which Bun and Deno have too. */
export async function builtin<Name extends keyof Builtins>(name: Name): Promise<Builtins[Name]> {
  try {
    // Not a literal: bundlers for browsers would try to resolve it.
    const module: string = name;
    return (await import(module)) as Builtins[Name];
  } catch (cause) {
    throw new PandaStackError("local files and ports can be used in Node.js, Bun and Deno only", { cause });
  }
}

/** A module of Node.js at once, where the runtime can give it. */
export function builtinNow<Name extends keyof Builtins>(name: Name): Builtins[Name] | undefined {
  const process = (globalThis as { process?: { getBuiltinModule?: (name: string) => unknown } }).process;
  return process?.getBuiltinModule?.(name) as Builtins[Name] | undefined;
}

/** A variable of the environment, unless it is empty. */
export function environment(name: string): string | undefined {
  try {
    const value = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name];
    return value === undefined || value === "" ? undefined : value;
  } catch {
    // Deno without permission to read the environment.
    return undefined;
  }
}

/** Answers of the server as the SDK shows them. */

import { FREE_MEMBERS } from "./generated.js";

/** `memory_mb` → `memoryMb`, as types. */
export type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;

/** What `view` makes of an answer: its members in camelCase, and as the wire calls them. */
export type Shown<Wire> = { readonly [Key in keyof Wire as CamelCase<Key & string>]: Wire[Key] } & Readonly<Wire>;

/** What may be given in camelCase, or as the wire calls it. */
export type Given<Wire> = { [Key in keyof Wire as CamelCase<Key & string>]?: Wire[Key] | undefined } & {
  [Key in keyof Wire]?: Wire[Key] | undefined;
};

/** A request with nothing forgotten: what the server learns to take, the compiler asks for. */
export type Whole<Wire> = { [Key in keyof Required<Wire>]: Wire[Key] | undefined };

/** Of answers that the generated types do not cover. */
const FREE = new Set([...FREE_MEMBERS, "env", "meta"]);

/** A request from what was given in camelCase. */
export function snakeCase(given: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(given).map(([key, value]) => [key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]),
  );
}

/** `memory_mb` → `memoryMb`. */
export function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/**
 * Renames members from the wire's snake_case to camelCase, all the way down, and leaves out those that are `null`.
 *
 * The wire's own names keep working as hidden aliases, for programs written for earlier releases. Members whose keys are data
 * (`metadata`, `results`, …) are left as they are.
 */
export function view<T>(wire: unknown): T {
  return shown(wire) as T;
}

function shown(wire: unknown): unknown {
  if (Array.isArray(wire)) return wire.map(shown);
  if (wire === null || typeof wire !== "object") return wire;
  const made: Record<string, unknown> = {};
  const aliases: string[] = [];
  for (const [key, value] of Object.entries(wire)) {
    if (value === null) continue;
    const name = camelCase(key);
    // Never through a setter: a key such as `__proto__` is data like any other.
    Object.defineProperty(made, name, {
      value: FREE.has(key) ? value : shown(value),
      enumerable: true,
      writable: true,
      configurable: true,
    });
    if (name !== key) aliases.push(key);
  }
  for (const key of aliases) {
    const name = camelCase(key);
    Object.defineProperty(made, key, { get: () => made[name], enumerable: false, configurable: true });
  }
  return made;
}

/** The list in an answer that is one, or that holds one under one of these names. */
export function listIn(answer: unknown, ...names: string[]): unknown[] {
  if (Array.isArray(answer)) return answer;
  if (answer !== null && typeof answer === "object") {
    for (const name of names) {
      const held = (answer as Record<string, unknown>)[name];
      if (Array.isArray(held)) return held;
    }
  }
  return [];
}

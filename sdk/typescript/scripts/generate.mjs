// Writes src/generated.ts: the wire types, from docs/openapi.json.
//
// Requests keep the names of the wire. Answers are what `view` (src/view.ts) makes of them: camelCase, with the wire's own names as
// deprecated aliases. `node scripts/generate.mjs --check` only says whether the file is up to date.

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const target = join(root, "src", "generated.ts");
const api = JSON.parse(readFileSync(join(root, "..", "..", "docs", "openapi.json"), "utf8"));
const schemas = api.components.schemas;

/** What answers are called in the SDK, where that is not their name on the wire. */
const NAMES = {
  Context: "ContextInfo",
  Event: "SandboxEvent",
  FileEntry: "FileInfo",
  Lifecycle: "LifecycleInfo",
  Me: "MeInfo",
  Partial: "PartialOutput",
  Port: "PortInfo",
  Preview: "PreviewLink",
  Process: "ProcessInfo",
  Progress: "TemplateProgress",
  PromoteAnswer: "PromoteResult",
  Sandbox: "SandboxInfo",
  Snapshot: "SnapshotInfo",
  Template: "TemplateInfo",
  Token: "TokenInfo",
  Version: "VersionInfo",
  Volume: "VolumeInfo",
};

const refName = (ref) => ref.split("/").at(-1);

/** Names of all schemas that something leads to. */
function reachable(node, found = new Set()) {
  if (Array.isArray(node)) node.forEach((one) => reachable(one, found));
  else if (node && typeof node === "object") {
    if (typeof node.$ref === "string") {
      const name = refName(node.$ref);
      if (!found.has(name)) {
        found.add(name);
        reachable(schemas[name], found);
      }
    }
    Object.entries(node).forEach(([key, value]) => key !== "$ref" && reachable(value, found));
  }
  return found;
}

const asked = new Set();
const answered = new Set();
for (const operations of Object.values(api.paths)) {
  for (const operation of Object.values(operations)) {
    if (typeof operation !== "object" || !operation.responses) continue;
    reachable(operation.requestBody, asked);
    reachable(operation.responses, answered);
  }
}
// Events come in streams, which the document describes by their framing.
reachable({ $ref: "#/components/schemas/Event" }, answered);
answered.delete("StreamedEvent");

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
const isObject = (schema) => Boolean(schema.properties || schema.allOf);

/** A schema's type, without `null`. */
function typeOf(schema, nameOf) {
  if (schema.$ref) return nameOf(refName(schema.$ref));
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) {
    const types = choices.filter((one) => one.type !== "null").map((one) => typeOf(one, nameOf));
    return [...new Set(types)].join(" | ");
  }
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  const types = [schema.type].flat().filter((one) => one !== "null");
  return types
    .map((type) => {
      if (type === "array") {
        const item = typeOf(schema.items ?? {}, nameOf);
        return /[ |]/.test(item) && !item.startsWith("Record<") ? `(${item})[]` : `${item}[]`;
      }
      if (type === "object") return `Record<string, ${typeOf(schema.additionalProperties ?? {}, nameOf)}>`;
      if (type === "integer" || type === "number") return "number";
      if (type === "string" || type === "boolean") return type;
      return "unknown";
    })
    .join(" | ") || "unknown";
}

const nullable = (schema) =>
  [schema.type].flat().includes("null") || (schema.oneOf ?? schema.anyOf ?? []).some((one) => one.type === "null");

/** Whether values of it have nullable members, such as variables to set or remove. */
function holdsNull(schema) {
  return schema.additionalProperties && nullable(schema.additionalProperties);
}

function comment(text, indent) {
  const lines = (text ?? "").trim().replaceAll("*/", "* /").split("\n");
  if (lines.length === 1) return lines[0] ? `${indent}/** ${lines[0]} */\n` : "";
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd()).join("\n")}\n${indent} */\n`;
}

function members(schema) {
  const parts = (schema.allOf ?? [schema]).map((part) => (part.$ref ? schemas[refName(part.$ref)] : part));
  const properties = {};
  const required = new Set();
  for (const part of parts) {
    Object.assign(properties, part.properties);
    (part.required ?? []).forEach((name) => required.add(name));
  }
  return { properties, required };
}

function requestType(name) {
  const { properties, required } = members(schemas[name]);
  let text = `${comment(schemas[name].description, "")}export interface ${name} {\n`;
  for (const [key, schema] of Object.entries(properties)) {
    let type = typeOf(schema, (one) => one);
    if (holdsNull(schema)) type = type.replace(/>$/, " | null>");
    text += `${comment(schema.description, "  ")}  ${key}${required.has(key) ? "" : "?"}: ${type}${required.has(key) ? "" : " | undefined"};\n`;
  }
  return `${text}}\n`;
}

const answerName = (name) => NAMES[name] ?? name;

function answerType(name) {
  const { properties, required } = members(schemas[name]);
  let text = `${comment(schemas[name].description, "")}export interface ${answerName(name)} {\n`;
  for (const [key, schema] of Object.entries(properties)) {
    const optional = !required.has(key) || nullable(schema);
    const type = typeOf(schema, answerName);
    const rest = `${optional ? "?" : ""}: ${type};\n`;
    text += `${comment(schema.description, "  ")}  readonly ${camel(key)}${rest}`;
    if (camel(key) !== key) text += `  /** @deprecated Use \`${camel(key)}\`. */\n  readonly ${key}${rest}`;
  }
  return `${text}}\n`;
}

/** Members whose keys are the caller's own words. */
const free = new Set();
for (const name of answered) {
  for (const [key, schema] of Object.entries(members(schemas[name]).properties)) {
    const item = schema.items ?? schema;
    if (item.additionalProperties || (!item.type && !item.$ref && !item.oneOf && !item.anyOf)) free.add(key);
  }
}

const sections = [];
const both = [...new Set([...asked, ...answered])].sort();
for (const name of both) {
  if (!isObject(schemas[name])) {
    sections.push(`${comment(schemas[name].description, "")}export type ${name} = ${typeOf(schemas[name], (one) => one)};\n`);
  } else if (asked.has(name) && answered.has(name)) {
    throw new Error(`${name} is both asked and answered: give one of them a name of its own`);
  } else {
    sections.push(asked.has(name) ? requestType(name) : answerType(name));
  }
}

const text = `// Generated by scripts/generate.mjs from docs/openapi.json. Do not edit.

${sections.join("\n")}
/** Members of answers whose keys are data, not names. */
export const FREE_MEMBERS: ReadonlySet<string> = new Set(${JSON.stringify([...free].sort())});
`;

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("src/generated.ts does not fit docs/openapi.json: run `npm run generate`");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}

// Writes docs/reference/typescript.md to standard output: every public name of the package with its declaration and what is said
// of it, from the types that a build leaves in dist/esm.

import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const types = join(dirname(dirname(fileURLToPath(import.meta.url))), "dist", "esm");

const HEAD = `# TypeScript reference

<!-- Made from sdk/typescript/src by sdk/typescript/scripts/reference.mjs. Do not edit. -->

\`npm install ./sdk/typescript\` in a clone of the repository; [its README](../../sdk/typescript/README.md) is the introduction.
What npm calls \`@pandastack/sdk\` is an older client with another interface until this version is published.

Everything is importable from \`@pandastack/sdk\`. Members that only repeat another under a deprecated name are left out.
`;

/** Declarations of all files by name. */
const declarations = new Map();
/** Those of generated.ts, which others add members to. */
const generated = new Map();
for (const file of readdirSync(types).filter((name) => name.endsWith(".d.ts")).sort()) {
  const source = ts.createSourceFile(file, readFileSync(join(types, file), "utf8"), ts.ScriptTarget.Latest, true);
  for (const statement of source.statements) {
    const names = ts.isVariableStatement(statement) ? statement.declarationList.declarations : [statement];
    for (const { name } of names) {
      // The same name may be a value and a type; the first says what it is.
      if (name !== undefined && !declarations.has(name.text)) declarations.set(name.text, { statement, source });
      if (name !== undefined && file === "generated.d.ts") generated.set(name.text, { statement, source });
    }
  }
}

/** Public names in the order of index.ts: what they are called and what they are in their file. */
const index = ts.createSourceFile("index.d.ts", readFileSync(join(types, "index.d.ts"), "utf8"), ts.ScriptTarget.Latest, true);
const exported = index.statements
  .filter((statement) => ts.isExportDeclaration(statement) && statement.exportClause !== undefined)
  .flatMap((statement) => statement.exportClause.elements)
  .map((element) => ({ name: element.name.text, of: (element.propertyName ?? element.name).text }));

const tagged = (node, tag) => ts.getJSDocTags(node).some(({ tagName }) => tagName.text === tag);

/** A comment without its stars. Examples stay as they are. */
function words(node, source) {
  const comment = ts.getJSDocCommentsAndTags(node).find(ts.isJSDoc);
  if (comment === undefined) return "";
  return comment
    .getText(source)
    .replace(/^\/\*\*|\*\/$/g, "")
    .split("\n")
    .map((line) => line.replace(/^\s*\* ?/, "").trimEnd())
    .join("\n")
    .replace(/^@example\n/gm, "")
    .trim();
}

/** A member as one line of code behind what is said of it. */
function member(node, source) {
  const hidden = ["deprecated", "internal"].some((tag) => tagged(node, tag));
  const text = node.getText(source).replace(/\n( +)/g, (_, blanks) => `\n${" ".repeat(blanks.length / 2)}`);
  if (hidden || text.startsWith("#") || text.startsWith("private ")) return [];
  const said = words(node, source);
  const lines = said === "" || said.includes("```") ? [] : [...said.split("\n").map((line) => `  // ${line}`.trimEnd())];
  return [...lines, `  ${text}`];
}

/** What an interface adds to a generated one, as `interface X extends With<wire.X, More> {}`: the generated one and its additions. */
function additions({ statement, source }) {
  const [type] = statement.heritageClauses?.[0]?.types ?? [];
  if (type?.expression.getText(source) !== "With") return undefined;
  const [base, more] = type.typeArguments;
  const named = ts.isTypeReferenceNode(more) ? declarations.get(more.typeName.text).statement : more;
  return { base: generated.get(base.typeName.right.text), members: named.members };
}

/** A declaration as code. */
function code({ statement, source }) {
  const added = ts.isInterfaceDeclaration(statement) ? additions({ statement, source }) : undefined;
  if (added !== undefined) {
    const names = new Set(added.members.map((node) => node.name.getText(source)));
    const kept = added.base.statement.members.filter((node) => !names.has(node.name.getText(added.base.source)));
    const members = [
      ...kept.flatMap((node) => member(node, added.base.source)),
      ...added.members.flatMap((node) => member(node, source)),
    ];
    return `interface ${statement.name.text} {\n${members.join("\n")}\n}`;
  }
  if (!ts.isClassDeclaration(statement) && !ts.isInterfaceDeclaration(statement)) {
    return statement.getText(source).replace(/^export (declare )?/, "");
  }
  const opening = source.text.slice(statement.getStart(source), statement.members.pos).replace(/^export (declare )?/, "");
  const members = statement.members.flatMap((node) => member(node, source));
  return members.length === 0 ? `${opening.trimEnd()}}` : `${opening.trimEnd()}\n${members.join("\n")}\n}`;
}

const sections = { Classes: [], Errors: [], Types: [] };
const aliases = [];
for (const { name, of } of exported) {
  const found = declarations.get(of);
  if (found === undefined) throw new Error(`there is no declaration of ${of}`);
  const { statement, source } = found;
  if (name !== of || ts.isVariableStatement(statement)) {
    aliases.push(`- \`${name}\`${name === of ? " is another name of `PandaStack`" : ` is \`${of}\``}.`);
    continue;
  }
  const kind = !ts.isClassDeclaration(statement) ? "Types" : source.fileName === "errors.d.ts" ? "Errors" : "Classes";
  sections[kind].push(`### ${name}\n\n${words(statement, source)}\n\n\`\`\`ts\n${code(found)}\n\`\`\``);
}

const body = Object.entries(sections).map(([title, parts]) => `## ${title}\n\n${parts.join("\n\n")}\n`);
process.stdout.write(`${[HEAD, ...body, `## Other names\n\n${aliases.join("\n")}\n`].join("\n").replace(/\n{3,}/g, "\n\n")}`);

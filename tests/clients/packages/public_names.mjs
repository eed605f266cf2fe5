// Prints what a program can name of the `@pandastack/sdk` of a project, one a line: values, types, and members of both.
//
// Usage: public_names.mjs PROJECT COMPILER    (directories: one has the package installed, the other TypeScript)
//
// Run over two projects, it tells what one of them lacks.

import { createRequire } from "node:module";
import { join } from "node:path";

const [project, compiler] = process.argv.slice(2);
const ts = createRequire(join(compiler, "package.json"))("typescript");

const options = {
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  lib: ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts"],
  types: [],
  noEmit: true,
};
const { resolvedModule } = ts.resolveModuleName("@pandastack/sdk", join(project, "program.mts"), options, ts.sys, undefined, undefined, ts.ModuleKind.ESNext);
const program = ts.createProgram([resolvedModule.resolvedFileName], options);
const checker = program.getTypeChecker();
const module = checker.getSymbolAtLocation(program.getSourceFile(resolvedModule.resolvedFileName));

const HIDDEN = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
const isPublic = (symbol) =>
  !/^(_|#|prototype$)/.test(symbol.name) &&
  (symbol.declarations ?? []).every((declaration) => (ts.getCombinedModifierFlags(declaration) & HIDDEN) === 0);
const members = (type) => checker.getPropertiesOfType(type).filter(isPublic).map((member) => member.name);

for (const exported of checker.getExportsOfModule(module)) {
  const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
  if (symbol.flags & ts.SymbolFlags.Value) {
    console.log(`value ${exported.name}`);
    const statics = members(checker.getTypeOfSymbol(symbol));
    for (const name of statics) console.log(`value ${exported.name}.${name}`);
  }
  if (symbol.flags & (ts.SymbolFlags.Type | ts.SymbolFlags.Class)) {
    console.log(`type ${exported.name}`);
    const type = checker.getDeclaredTypeOfSymbol(symbol);
    // Of a union, such as "python" | "nodejs", the members are those of strings.
    if (type.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection)) {
      for (const name of members(type)) console.log(`type ${exported.name}.${name}`);
    }
  }
}

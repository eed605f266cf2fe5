// Compiles the package twice, for `import` and for `require`, each with its types.

import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");

// Packages carry their licence; the tree has it once.
copyFileSync(join(root, "..", "..", "LICENSE"), join(root, "LICENSE"));
rmSync(join(root, "dist"), { recursive: true, force: true });
for (const [project, directory, type] of [
  ["tsconfig.json", "esm", "module"],
  ["tsconfig.cjs.json", "cjs", "commonjs"],
]) {
  const { status } = spawnSync(process.execPath, [tsc, "-p", join(root, project)], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
  mkdirSync(join(root, "dist", directory), { recursive: true });
  writeFileSync(join(root, "dist", directory, "package.json"), `${JSON.stringify({ type })}\n`);
}

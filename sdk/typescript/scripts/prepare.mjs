// Builds the package where it is installed from its sources: `npm install ./sdk/typescript`, with or without --install-links, and
// `npm pack`. npm runs this in the directory itself and does not install what the build needs, so this does. What is built already
// stays as it is.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const built = ["esm", "cjs"].map((directory) => join(root, "dist", directory, "index.js"));
const sources = ["package.json", "tsconfig.json", "tsconfig.cjs.json", "scripts/build.mjs"].map((name) => join(root, name));

/** Whether everything that was built is newer than everything it is made from. */
function isFresh() {
  if (!built.every(existsSync)) return false;
  const files = [...sources, ...readdirSync(join(root, "src")).map((name) => join(root, "src", name))];
  const newest = Math.max(...files.filter(existsSync).map((file) => statSync(file).mtimeMs));
  return built.every((file) => statSync(file).mtimeMs >= newest);
}

/** Whether the compiler and the types it needs are there. */
function hasCompiler() {
  const { resolve } = createRequire(join(root, "package.json"));
  try {
    resolve("typescript/bin/tsc");
    resolve("@types/node/package.json");
    return true;
  } catch {
    return false;
  }
}

/** The environment without what the npm that runs this was asked to do. */
function environment() {
  const asked =
    /^npm_config_(global|location|prefix|local_prefix|omit|include|production|only|also|dry_run|workspaces?|include_workspace_root|package_lock.*|save.*|install_links|install_strategy|ignore_scripts)$/i;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => name !== "NODE_ENV" && !asked.test(name)));
}

function run(...command) {
  const { status, error } = spawnSync(command[0], command.slice(1), { cwd: root, env: environment(), stdio: "inherit" });
  if (status === 0) return;
  console.error(`could not build @pandastack/sdk: ${command.join(" ")}${error ? `: ${error.message}` : ""}`);
  console.error(`hint: run \`npm ci && npm run build\` in ${root}`);
  process.exit(status ?? 1);
}

// An unpacked release has no sources of the build; what is built is all there is.
if (existsSync(join(root, "scripts", "build.mjs")) && !isFresh()) {
  if (!hasCompiler()) {
    const npm = process.env.npm_execpath ?? "";
    const program = /npm-cli\.[cm]?js$/.test(npm) ? [process.execPath, npm] : ["npm"];
    run(...program, "ci", "--include=dev", "--ignore-scripts", "--no-audit", "--no-fund");
  }
  run(process.execPath, join(root, "scripts", "build.mjs"));
}

// Drives a server with the command line that is part of the published npm package.
//
// Reads PANDASTACK_API_URL and PANDASTACK_API_KEY. Each step prints what was run; the first that fails ends the script.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const sdk = dirname(createRequire(import.meta.url).resolve("@pandastack/sdk"));
const directory = mkdtempSync(join(tmpdir(), "pandastack-"));

/** Runs the program; what it wrote and how it ended. */
function program(given, { input = "" } = {}) {
  const options = { input, encoding: "utf8", timeout: 120_000, env: { ...process.env, HOME: directory } };
  const ran = spawnSync(process.execPath, [join(sdk, "cli.js"), ...given], options);
  console.log(`pandastack ${given.join(" ").slice(0, 60)}: ${ran.status}`);
  return ran;
}

/** Runs the program, which must succeed; what it wrote. */
function says(...given) {
  const ran = program(given);
  assert.equal(ran.status, 0, `${given.join(" ")}: ${ran.stdout}${ran.stderr}`);
  return ran.stdout;
}

const object = (...given) => JSON.parse(says(...given));

try {
  assert.ok(object("me").workspace);
  assert.ok(object("template", "list").some((one) => one.name === "base"));
  assert.equal(object("template", "get", "base").name, "base");
  const { id } = object("sandbox", "create", "--ttl", "600", "--metadata", "a=b");
  assert.equal(object("sandbox", "get", id).metadata.a, "b");
  assert.deepEqual(object("sandbox", "list").map((one) => one.id), [id]);
  assert.equal(says("sandbox", "exec", id, "--", "echo", "hi"), "hi\n");
  assert.equal(program(["sandbox", "exec", id, "--", "exit 7"]).status, 7);
  assert.equal(says("sandbox", "run-code", id, "--language", "python", "--", "print(6*7)"), "42\n");
  says("fs", "write", id, "--path", "/root/file", "--content", "written");
  assert.equal(says("fs", "read", id, "--path", "/root/file"), "written");
  writeFileSync(join(directory, "local"), "uploaded");
  says("fs", "upload", id, "--local", join(directory, "local"), "--remote", "/root/remote");
  says("fs", "download", id, "--remote", "/root/remote", "--local", join(directory, "back"));
  assert.equal(readFileSync(join(directory, "back"), "utf8"), "uploaded");
  says("sandbox", "logs", id);
  for (const verb of ["pause", "resume", "hibernate", "wake"]) says("sandbox", verb, id);
  assert.equal(object("sandbox", "set-ttl", id, "--ttl", "1200").ttl_seconds, 1200);
  assert.equal(object("sandbox", "set-persistent", id, "--persistent", "true").persistent, true);
  assert.equal(object("sandbox", "lifecycle", id).persistent, true);
  assert.match(says("sandbox", "preview-url", id, "--port", "8000"), new RegExp(`8000-${id}\\.`));
  assert.deepEqual(object("sandbox", "preview-urls", id), {});
  const fork = object("sandbox", "fork", id, "--metadata", "branch=one");
  assert.equal(fork.metadata.branch, "one");
  const tree = object("sandbox", "fork-tree", id, "--count", "2");
  assert.equal(tree.length, 2);
  assert.equal(object("sandbox", "promote", tree[0].id).winner, tree[0].id);
  const snapshot = object("sandbox", "snapshot", id);
  assert.ok(JSON.stringify(object("snapshot", "list")).includes(snapshot.id));
  assert.equal(object("snapshot", "get", snapshot.id).id, snapshot.id);
  says("snapshot", "delete", snapshot.id);
  // A terminal: what is typed is run, and the program ends with the shell.
  const shell = program(["ssh", id], { input: "echo typed $((6 * 7)); exit\n" });
  assert.equal(shell.status, 0, shell.stderr);
  assert.match(shell.stdout, /typed 42/);
  const token = object("token", "create", "--label", "cli");
  assert.ok(object("token", "list").some((one) => one.prefix === token.prefix));
  says("token", "revoke", token.prefix);
  for (const one of [id, fork.id, tree[0].id, tree[1].id]) says("sandbox", "delete", one);
  const gone = program(["sandbox", "get", id]);
  assert.notEqual(gone.status, 0);
  assert.match(gone.stderr, /there is no sandbox/);
  assert.deepEqual(object("sandbox", "list"), []);
} finally {
  rmSync(directory, { recursive: true });
}

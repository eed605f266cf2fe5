// Uses the package that is installed, with `import`: makes a sandbox, runs a command in it, deletes it.
//
// Usage: use.mjs TEMPLATE    (PANDASTACK_API and PANDASTACK_API_KEY say where)

import assert from "node:assert/strict";

import { NotFoundError, PandaStack } from "@pandastack/sdk";

const client = new PandaStack({ timeoutMs: 120_000 });
const sandbox = await client.sandboxes.create({ template: process.argv[2] });
try {
  assert.equal((await sandbox.exec("echo hello")).stdout, "hello\n");
} finally {
  await sandbox.delete();
}
await assert.rejects(client.sandboxes.get(sandbox.id), NotFoundError);
console.log("TypeScript package works with import");

// Uses the package that is installed, with `require`: makes a sandbox, runs a command in it, deletes it.
//
// Usage: use.cjs TEMPLATE    (PANDASTACK_API and PANDASTACK_API_KEY say where)

const assert = require("node:assert/strict");

const { NotFoundError, PandaStack } = require("@pandastack/sdk");

async function main() {
  const client = new PandaStack({ timeoutMs: 120_000 });
  const sandbox = await client.sandboxes.create({ template: process.argv[2] });
  try {
    assert.equal((await sandbox.exec("echo hello")).stdout, "hello\n");
  } finally {
    await sandbox.delete();
  }
  await assert.rejects(client.sandboxes.get(sandbox.id), NotFoundError);
  console.log("TypeScript package works with require");
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});

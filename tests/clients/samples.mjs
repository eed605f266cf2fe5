// The product's samples, as they are printed, with a template as the first argument.
//
// Reads PANDASTACK_API and PANDASTACK_API_KEY. Each check prints its name; the first that fails ends the script.

import assert from "node:assert/strict";

import { PandaStack } from "@pandastack/sdk";

const template = process.argv[2];
const apiKey = process.env.PANDASTACK_API_KEY;

async function aKeyIsGiven() {
  const client = new PandaStack({ apiKey });
  const sandbox = await client.sandboxes.create({ template, ttlSeconds: 600, metadata: { task: "sample" } });
  const result = await sandbox.exec("python -c 'print(2 ** 10)'", { timeoutSeconds: 30 });
  assert.deepEqual([result.stdout, result.exitCode], ["1024\n", 0]);
  await sandbox.filesystem.write("/work/note.txt", "a note");
  assert.equal(await sandbox.filesystem.read("/work/note.txt"), "a note");
  const child = await sandbox.fork();
  assert.notEqual(child.id, sandbox.id);
  assert.equal((await child.exec("cat /work/note.txt")).stdout, "a note");
  await child.delete();
  await sandbox.delete();
}

async function keysComeFromTheEnvironment() {
  for (const variable of ["PANDASTACK_TOKEN", "PANDASTACK_API_KEY"]) {
    delete process.env.PANDASTACK_API_KEY;
    delete process.env.PANDASTACK_TOKEN;
    process.env[variable] = apiKey;
    const client = new PandaStack();
    assert.equal(client.sandbox, client.sandboxes);
    assert.ok((await client.me()).workspace);
  }
  process.env.PANDASTACK_API_KEY = apiKey;
  delete process.env.PANDASTACK_TOKEN;
}

async function codeKeepsItsState() {
  const sandbox = await new PandaStack().sandboxes.create({ template });
  await sandbox.runCode("x = 1", { language: "python" });
  assert.equal((await sandbox.runCode("x", { language: "python" })).text, "1");
  assert.equal((await sandbox.exec(["ls", "-d", "/root"])).stdout, "/root\n");
  await sandbox.delete();
}

for (const check of [aKeyIsGiven, keysComeFromTheEnvironment, codeKeepsItsState]) {
  await check();
  console.log(check.name);
}

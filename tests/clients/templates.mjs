// Makes templates with the published TypeScript SDK, as its users would.
//
// Reads PANDASTACK_API, PANDASTACK_API_KEY, IMAGE_REF and ROOTFS. Each check prints its name; the first that fails ends the script.

import assert from "node:assert/strict";

import { AuthError, BadRequestError, Client, NotFoundError, TemplateBuildError } from "@pandastack/sdk";

const client = new Client({ timeoutMs: 300_000 });
const quickly = { intervalMs: 500 };

async function inSandbox(template, command) {
  const sandbox = await client.sandboxes.create({ template });
  try {
    return (await sandbox.exec(command)).stdout;
  } finally {
    await sandbox.kill();
  }
}

async function register() {
  const build = await client.templates.register({ name: "ts-image", imageRef: process.env.IMAGE_REF, sizeMb: 256 });
  assert.equal(build.status, "queued");
  assert.equal((await client.templates.waitForBuild(build.id, quickly)).status, "done");
  assert.equal(await inSandbox("ts-image", "read mark < /mark; echo $mark"), "from the registry\n");
  const again = { name: "ts-image", imageRef: process.env.IMAGE_REF };
  await assert.rejects(client.templates.register(again), BadRequestError);
  await assert.rejects(client.templates.register({ ...again, name: "minimal" }), AuthError);
}

async function rootfs() {
  const build = await client.templates.build({ name: "ts-rootfs", rootfs: process.env.ROOTFS, sizeMb: 256 });
  assert.equal((await client.templates.waitForBuild(build.id, quickly)).status, "done");
  assert.equal(await inSandbox("ts-rootfs", "read mark < /mark; echo $mark"), "from the registry\n");
}

async function dockerfileWithNestedContext() {
  const dockerfile = "FROM minimal\nWORKDIR /app\nCOPY . .\nRUN cat src/deep/word.txt rootfs > made && echo '{\"error\":\"no\"}'\n";
  const context = { "src/deep/word.txt": "deep\n", rootfs: "a file like any other\n" };
  const build = await client.templates.buildFromDockerfile({ name: "ts-docker", dockerfile, context });
  const lines = [];
  for await (const line of client.templates.buildLogs(build.id)) lines.push(line);
  assert.equal((await client.templates.buildStatus(build.id)).status, "done", lines.join("\n"));
  assert.ok(lines.some((line) => line.includes("RUN")), lines.join("\n"));
  assert.ok(lines.some((line) => line.includes('{"error":"no"}')), lines.join("\n"));
  assert.equal(await inSandbox("ts-docker", "cat made"), "deep\na file like any other\n");
}

async function failureIsTold() {
  const build = await client.templates.buildFromDockerfile({ name: "ts-fails", dockerfile: "FROM minimal\nRUN exit 7\n" });
  await assert.rejects(client.templates.waitForBuild(build.id, quickly), (error) => {
    assert.ok(error instanceof TemplateBuildError);
    assert.match(error.message, /line 2/);
    return true;
  });
}

async function listedAndDeleted() {
  const names = (await client.templates.list()).map((template) => template.name);
  for (const name of ["minimal", "ts-image", "ts-rootfs", "ts-docker"]) assert.ok(names.includes(name), name);
  assert.equal((await client.templates.get("ts-docker")).is_global, false);
  assert.ok((await client.templates.builds()).length >= 4);
  for (const name of ["ts-image", "ts-rootfs", "ts-docker"]) {
    await client.templates.delete(name);
    await assert.rejects(client.templates.get(name), NotFoundError);
  }
  await assert.rejects(client.templates.delete("minimal"), AuthError);
}

for (const check of [register, rootfs, dockerfileWithNestedContext, failureIsTold, listedAndDeleted]) {
  await check();
  console.log(`ok ${check.name}`);
}

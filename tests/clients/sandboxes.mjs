// Drives a server with the published TypeScript SDK, as its users would.
//
// Reads PANDASTACK_API and PANDASTACK_API_KEY. Each check prints its name; the first that fails ends the script.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import {
  AuthError,
  BadRequestError,
  Client,
  CommandError,
  NotFoundError,
  Sandbox,
  SandboxTimeout,
} from "@pandastack/sdk";

// Guests may be emulated and the host busy: the client's own patience is for real machines.
const client = new Client({ timeoutMs: 120_000 });

const ids = async () => (await client.sandboxes.list()).map((one) => one.id).sort();

async function defaultsAndExec() {
  assert.deepEqual(await ids(), []);
  assert.ok((await client.me()).workspace);
  const sandbox = await client.sandboxes.create();
  assert.equal(sandbox.template, "ubuntu-24.04");
  assert.equal((await sandbox.exec("echo hi")).stdout, "hi\n");
  assert.deepEqual(await ids(), [sandbox.id]);
  const failed = await sandbox.exec("echo no >&2; exit 9");
  assert.deepEqual([failed.exitCode, failed.stderr], [9, "no\n"]);
  await assert.rejects(sandbox.exec("exit 9", { check: true }), CommandError);
  assert.equal((await sandbox.exec("head -c 1048576 /dev/zero | tr '\\0' x")).stdout.length, 1 << 20);
  assert.equal((await sandbox.exec("printf 'a\\377b'")).stdout, "a\ufffdb");
  await assert.rejects(sandbox.exec("sleep 600", { timeoutSeconds: 1 }), SandboxTimeout);
  assert.equal((await sandbox.exec("setsid sleep 600 >/dev/null 2>&1 & echo launched")).stdout, "launched\n");
  assert.equal((await sandbox.runCode("print(6 * 7)", "python")).stdout, "42\n");
  assert.equal((await sandbox.runCode("echo $((6 * 7))", "bash")).stdout, "42\n");
  return sandbox;
}

async function streams(sandbox) {
  const seen = [];
  const code = await sandbox.execStream(
    "echo one; sleep 0.3; echo two >&2; sleep 0.3; printf '\\360\\237\\220\\274 \\342\\200\\250 end\\n'; exit 5",
    { onStdout: (text) => seen.push(["out", text]), onStderr: (text) => seen.push(["err", text]) },
  );
  assert.equal(code, 5);
  assert.deepEqual(seen.slice(0, 2), [["out", "one\n"], ["err", "two\n"]]);
  assert.equal(seen.slice(2).map(([, text]) => text).join(""), "🐼 \u2028 end\n");
  await assert.rejects(sandbox.execStream("sleep 600", { timeoutSeconds: 1 }), SandboxTimeout);
}

async function files(sandbox) {
  const fs = sandbox.filesystem;
  await fs.write("/root/deep/down/text", "grüße 🐼");
  assert.equal(await fs.read("/root/deep/down/text"), "grüße 🐼");
  await assert.rejects(fs.read("/root/nonesuch"), NotFoundError);
  assert.equal(await fs.exists("/root/nonesuch"), false);
  assert.equal(await fs.exists("/root/deep/down/text"), true);
  await sandbox.exec("mkdir /root/empty", { check: true });
  assert.deepEqual(await fs.list("/root/empty"), []);
  assert.ok((await fs.list("/root")).some((entry) => entry.name === "deep" && entry.is_dir));
  assert.equal((await fs.stat("/root/deep/down/text")).path, "/root/deep/down/text");
  const directory = await mkdtemp(join(tmpdir(), "pandastack-"));
  try {
    const large = "0123456789abcdef".repeat((100 << 20) / 16);
    await writeFile(join(directory, "there"), large);
    await fs.upload(join(directory, "there"), "/root/large");
    await fs.download("/root/large", join(directory, "back"));
    assert.equal(await readFile(join(directory, "back"), "utf8"), large);
  } finally {
    await rm(directory, { recursive: true });
  }
  await sandbox.exec("rm /root/large", { check: true });
}

async function sleepAndWake(sandbox) {
  await sandbox.exec("echo memory > /run/memory; setsid sleep 9999 >/dev/null 2>&1 & echo $! > /run/pid");
  await sandbox.pause();
  await sandbox.resume();
  await sandbox.hibernate();
  assert.equal((await Sandbox.get(sandbox.id, client)).status, "hibernated");
  const woken = await sandbox.exec("cat /run/memory; kill -0 $(cat /run/pid) && echo alive");
  assert.equal(woken.stdout, "memory\nalive\n");
  await sandbox.wake();
  await sandbox.wake();
  assert.equal((await sandbox.setTtl(1234)).ttl_seconds, 1234);
  assert.equal((await sandbox.setPersistent(true)).persistent, true);
  assert.equal((await sandbox.lifecycle()).ttl_seconds, 1234);
  await sandbox.setPersistent(false);
}

async function snapshots(sandbox) {
  const snapshot = await sandbox.snapshot();
  assert.ok((await client.snapshots.list()).some((one) => one.id === snapshot.id));
  assert.equal((await client.snapshots.get(snapshot.id)).sandbox_id, sandbox.id);
  await sandbox.kill();
  const child = await client.sandboxes.create({ fromSnapshot: snapshot.id });
  assert.equal((await child.exec("cat /run/memory /root/deep/down/text")).stdout, "memory\ngrüße 🐼");
  await client.snapshots.delete(snapshot.id);
  await assert.rejects(client.snapshots.get(snapshot.id), NotFoundError);
  return child;
}

async function forks(sandbox) {
  const plain = await sandbox.fork();
  const named = await sandbox.fork({ metadata: { branch: "one" } });
  assert.equal(named.info.metadata.branch, "one");
  for (const child of [plain, named, sandbox]) {
    assert.equal((await child.exec("cat /run/memory")).stdout, "memory\n");
  }
  await plain.kill();
  await named.kill();
  const tree = await sandbox.forkTree({ count: 4 });
  assert.equal(new Set(tree.map((child) => child.id)).size, 4);
  const chosen = await tree[1].promote({ cleanupSiblings: true });
  assert.deepEqual([chosen.winner, chosen.deleted.length], [tree[1].id, 3]);
  await tree[1].kill();
  const explored = await sandbox.explore([
    { label: "bad", cmd: "exit 1" },
    { label: "good", cmd: "sh -c 'echo \"$A\" > /root/made'", env: { A: "b c" } },
  ]);
  assert.equal(explored.winnerOutcome.label, "good");
  assert.equal(explored.reaped.length, 1);
  assert.ok(explored.winnerOutcome.filesChanged.includes("/root/made"));
  assert.equal(await explored.winner.filesystem.read("/root/made"), "b c\n");
  await explored.winner.kill();
  assert.deepEqual(await ids(), [sandbox.id]);
}

async function contexts() {
  const sandbox = await client.sandboxes.create({ template: "code-interpreter" });
  const context = await sandbox.createCodeContext();
  await context.runCode("x = 41");
  assert.equal((await context.runCode("x + 1")).text, "42");
  assert.equal((await context.runCode("print('grüße')")).stdout, "grüße\n");
  const figure = await context.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()");
  assert.equal(Buffer.from(figure.png, "base64").subarray(1, 4).toString(), "PNG");
  assert.match((await context.runCode("1 / 0")).error, /ZeroDivisionError/);
  await assert.rejects(context.runCode("import time; time.sleep(600)", { timeoutSeconds: 1 }), SandboxTimeout);
  assert.equal((await context.runCode("x")).text, "41");
  await context.close();
  await sandbox.kill();
}

async function logsVolumesAndKeys() {
  await client.volumes.create({ name: "data", size_mb: 64 });
  await assert.rejects(client.volumes.create({ name: "data", size_mb: 64 }), BadRequestError);
  const sandbox = await client.sandboxes.create({ volumes: [{ name: "data" }], metadata: { a: "b" } });
  assert.equal(sandbox.info.metadata.a, "b");
  await sandbox.exec("mount /dev/vdb /mnt && echo kept > /mnt/file && umount /mnt", { check: true });
  await assert.rejects(client.volumes.delete("data"), BadRequestError);
  await sandbox.exec("echo on the console > /dev/console", { check: true });
  for await (const line of sandbox.logs({ follow: true })) {
    if (line.includes("on the console")) break;
  }
  assert.deepEqual(await sandbox.previewUrls(), {});
  await sandbox.kill();
  await client.volumes.delete("data");
  const token = await client.tokens.create("from the SDK");
  assert.ok((await client.tokens.list()).some((one) => one.prefix === token.prefix));
  await client.tokens.revoke(token.prefix);
  await assert.rejects(new Client({ apiKey: token.token }).me(), AuthError);
  assert.ok((await client.templates.list()).some((one) => one.name === "base"));
  await assert.rejects(client.sandboxes.get("nonesuch"), NotFoundError);
  await assert.rejects(client.sandboxes.create({ template: "nonesuch" }), BadRequestError);
}

async function run(check, ...given) {
  const begun = performance.now();
  const result = await check(...given);
  console.log(`${check.name}: ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  return result;
}

const sandbox = await run(defaultsAndExec);
await run(streams, sandbox);
await run(files, sandbox);
await run(sleepAndWake, sandbox);
const child = await run(snapshots, sandbox);
await run(forks, child);
await child.kill();
await run(contexts);
await run(logsVolumesAndKeys);
assert.deepEqual(await ids(), []);

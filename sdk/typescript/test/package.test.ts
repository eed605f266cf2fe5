/** The package as its users get it: names, types, both kinds of module, and what `npm pack` makes. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import * as sdk from "@pandastack/sdk";

import { json, sandboxBody, serving } from "./server.js";

const run = promisify(execFile);
const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

/** Values that release 0.9 exported. */
const EXPORTED = [
  "AppsAPI AppsNamespace AuthError BadRequestError Client CodeContext CommandError DatabasesAPI DatabasesNamespace ExploreError",
  "FunctionsAPI FunctionsNamespace NetworkError NotFoundError PandaStackError Sandbox SandboxTimeout SchedulesAPI",
  "SchedulesNamespace ServerError SnapshotsAPI SnapshotsNamespace TemplateBuildError VolumesAPI VolumesNamespace default",
].flatMap((line) => line.split(" "));

/** Types that it exported. */
const EXPORTED_TYPES = [
  "AppCreateOptions AppDomain AppDomainRecord AppInfo AppUpdateOptions BranchOutcome Candidate ClientConfig CreatedToken",
  "DatabaseCloneOptions DatabaseCreateOptions DatabaseInfo DeploymentInfo EnvVar ExecResult ExecStreamCallbacks Execution",
  "ExploreOptions ExploreResult FileInfo FunctionCreateOptions FunctionDeployOptions FunctionInfo FunctionMetrics FunctionRun",
  "FunctionRunInfo FunctionRuntime FunctionUpdateOptions LifecycleInfo LogsOptions MeInfo PreviewRepo PromoteResult Result",
  "SandboxCreateOptions SandboxForkOptions SandboxForkTreeOptions SandboxInfo ScheduleCreateOptions ScheduleInfo",
  "ScheduleUpdateOptions SnapshotInfo TemplateBuild TemplateBuildOptions TemplateDockerfileBuildOptions TemplateInfo",
  "TemplateRegisterOptions TokenInfo VolumeInfo",
].flatMap((line) => line.split(" "));

/** Methods that its clients had. */
const METHODS: Record<string, string> = {
  sandboxes: "create list get delete deleteAll",
  templates: "list get build register buildFromDockerfile delete builds buildStatus buildLogs waitForBuild",
  tokens: "list create revoke",
  functions: "create deploy list get update delete getCode invoke trigger recordRun runs listRuns deployBundle metrics",
  schedules: "create list get update delete trigger runs listRuns",
  databases: "create waitUntilReady list get delete connection failover wake update clone resetCredentials",
  apps:
    "create list get update delete deploy deployments deployment rollback deployLogs previews previewRepos enablePreviewRepo " +
    "disablePreviewRepo listEnv setEnv unsetEnv importEnv addDomain listDomains getDomain removeDomain listPreviewEnv " +
    "setPreviewEnv unsetPreviewEnv importPreviewEnv",
  volumes: "create list get delete",
  snapshots: "list get delete",
};

const SANDBOX =
  "exec execStream runCode createCodeContext tree update patch portForward logs kill pause resume snapshot fork forkTree promote explore hibernate wake setTtl " +
  "setPersistent lifecycle previewUrl previewUrls";
const FILESYSTEM = "read write upload download list stat exists walk watch downloadUrl uploadUrl";

test("the wire types are those of docs/openapi.json", async () => {
  await run(process.execPath, [join(ROOT, "scripts/generate.mjs"), "--check"]);
});

test("everything that release 0.9 had is there", async () => {
  for (const name of EXPORTED) assert.ok(name in sdk, name);
  const client = new sdk.Client({ apiKey: "k", apiUrl: "http://127.0.0.1:1" });
  assert.equal(client.sandbox, client.sandboxes);
  assert.ok(client instanceof sdk.PandaStack);
  const has = (thing: object, names: string) => {
    for (const name of names.split(" ")) assert.equal(typeof (thing as never)[name], "function", name);
  };
  for (const [member, names] of Object.entries(METHODS)) has((client as never)[member], names);
  has(client, "me setNetworkDefault request");
  has(sdk.Sandbox, "create list get fromInfo");
  for (const info of [{ id: "box", memory_mb: 512 }, { id: "box", memoryMb: 512 }]) {
    const kept = sdk.Sandbox.fromInfo(info, client);
    assert.deepEqual([kept.id, kept.info.memoryMb, kept.info.memory_mb], ["box", 512, 512]);
  }
  await serving(
    (_, response) => json(response, 200, sandboxBody()),
    async ({ client }) => {
      const sandbox = await sdk.Sandbox.get("box", client);
      has(sandbox, SANDBOX);
      has(sandbox.filesystem, FILESYSTEM);
      has(sandbox.commands, "run");
      assert.equal(sandbox.client, client);
      assert.equal(sandbox.previewUrl(80), `http://80-box.localhost:${new URL(client.baseUrl).port}`);
      assert.equal(sandbox.previewUrl(80, "https"), `https://80-box.localhost:${new URL(client.baseUrl).port}`);
    },
  );
});

test("require and import give the same names", () => {
  const required = createRequire(import.meta.url)("@pandastack/sdk") as Record<string, unknown>;
  assert.deepEqual(Object.keys(required).filter((name) => name !== "__esModule").sort(), Object.keys(sdk).sort());
});

test("what it packs installs in an empty place, runs both ways and has types for strict programs", async () => {
  const place = await mkdtemp(join(tmpdir(), "pandastack-pack-"));
  const npm = (...given: string[]) => run("npm", given, { cwd: place, env: { ...process.env, npm_config_update_notifier: "false" } });
  try {
    await run("npm", ["pack", "--ignore-scripts", "--silent", "--pack-destination", place], { cwd: ROOT });
    const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string };
    await writeFile(join(place, "package.json"), '{"private": true, "type": "module"}');
    await npm("install", "--offline", "--no-audit", "--no-fund", "--silent", `./pandastack-sdk-${version}.tgz`);
    const program = 'console.log(new PandaStack({ apiKey: "k", baseUrl: "http://127.0.0.1:1" }).baseUrl)';
    await writeFile(join(place, "a.mjs"), `import { PandaStack } from "@pandastack/sdk"; ${program}`);
    await writeFile(join(place, "b.cjs"), `const { PandaStack } = require("@pandastack/sdk"); ${program}`);
    for (const name of ["a.mjs", "b.cjs"]) {
      const { stdout } = await run(process.execPath, [name], { cwd: place });
      assert.equal(stdout, "http://127.0.0.1:1\n");
    }

    const typed = `
      export async function use(): Promise<number> {
        const client = new PandaStack({ apiKey: "k", baseUrl: "http://127.0.0.1:1" });
        const sandbox: Sandbox = await client.sandboxes.create({ template: "base", ttlSeconds: 60, metadata: { a: "b" } });
        const old: { memory_mb: number; created_at?: string } = sandbox.info;
        const { exitCode, exit_code } = await sandbox.exec("true", { timeoutSeconds: 1 });
        const code: number = await sandbox.execStream("true", { onStdout: (text: string) => text });
        const lifecycle = await sandbox.setTtl(5);
        for await (const event of sandbox.execStream("true")) if (event.type === "exit") return event.exitCode;
        // @ts-expect-error there is no such option
        await sandbox.exec("true", { timeout: 5 });
        return exitCode + exit_code + code + old.memory_mb + lifecycle.ttl_seconds + lifecycle.ttlSeconds;
      }`;
    const types = EXPORTED_TYPES.map((name) => `type ${name}`).join(", ");
    const imports = `import { PandaStack, type Sandbox, ${types} } from "@pandastack/sdk";`;
    await writeFile(join(place, "esm.mts"), imports + typed);
    await writeFile(join(place, "cjs.cts"), imports + typed);
    const compilerOptions = {
      strict: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
      target: "ES2022",
      module: "NodeNext",
      lib: ["ES2022", "ESNext.Disposable", "DOM", "DOM.Iterable"],
      types: [],
    };
    await writeFile(join(place, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["esm.mts", "cjs.cts"] }));
    const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
    await run(process.execPath, [tsc, "-p", place]).catch((error: { stdout?: string }) => assert.fail(error.stdout));
  } finally {
    await rm(place, { recursive: true });
  }
});

test("an install from the sources alone builds what is imported", async () => {
  const place = await mkdtemp(join(tmpdir(), "pandastack-tree-"));
  try {
    const clone = join(place, "clone/sdk/typescript");
    await mkdir(clone, { recursive: true });
    await cp(join(ROOT, "../../LICENSE"), join(place, "clone/LICENSE"));
    for (const name of ["package.json", "package-lock.json", "tsconfig.json", "tsconfig.cjs.json", "scripts", "src"]) {
      await cp(join(ROOT, name), join(clone, name), { recursive: true });
    }
    // The compiler is there already: without a network it could not be installed.
    await symlink(join(ROOT, "node_modules"), join(clone, "node_modules"));
    const project = join(place, "project");
    await mkdir(project);
    await writeFile(join(project, "package.json"), '{"private": true}');
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", "--silent", "../clone/sdk/typescript"], { cwd: project });
    const program = 'import("@pandastack/sdk").then((sdk) => console.log(typeof sdk.PandaStack, typeof require("@pandastack/sdk").PandaStack))';
    const { stdout } = await run(process.execPath, ["-e", program], { cwd: project });
    assert.equal(stdout, "function function\n");
  } finally {
    await rm(place, { recursive: true });
  }
});

test("functions, databases and apps speak the contract, in either case", async () => {
  const answers: Record<string, unknown> = {
    "POST /v1/functions": { id: "f", code_size: 3, url: "http://f", env: { MY_KEY: "v" } },
    "POST /v1/functions/f/invoke": { id: "r", exit_code: 0, stdout: "out", schedule_id: null },
    "POST /v1/schedules": { id: "s", function_id: "f" },
    "POST /v1/databases": { id: "d", status: "provisioning" },
    "GET /v1/databases/d": { id: "d", status: "running", connection_url: "postgres://d" },
    "POST /v1/apps": { id: "a", git_url: "g", env: { MY_KEY: "v" } },
    "GET /v1/apps/a/env": { env: [{ key: "K", secret: true, scope: "all", created_by: "me" }] },
    "GET /v1/apps": { items: [{ id: "a", is_preview: true }, { id: "b" }] },
  };
  await serving(
    ({ method, path }, response) => json(response, 200, answers[`${method} ${path}`]),
    async ({ client, arrived }) => {
      const sent = () => JSON.parse(String(arrived.at(-1)?.body)) as unknown;
      const made = await client.functions.create("f", "python", "grüße", { env: { MY_KEY: "v" } });
      assert.deepEqual(sent(), { name: "f", runtime: "python", entrypoint: "handler.py", env: { MY_KEY: "v" }, code: "Z3LDvMOfZQ==" });
      assert.deepEqual([made.codeSize, made.code_size, made.endpoint, made.env], [3, 3, "http://f", { MY_KEY: "v" }]);
      const run = await client.functions.invoke("f", { a: 1 });
      assert.deepEqual(sent(), { input: { a: 1 } });
      assert.deepEqual([run.exitCode, "scheduleId" in run], [0, false]);
      await client.schedules.create("s", "f", "* * * * *");
      assert.deepEqual(sent(), { paused: false, name: "s", function_id: "f", cron: "* * * * *" });
      await client.schedules.create({ name: "s", functionId: "f", cron: "* * * * *", paused: true });
      assert.deepEqual(sent(), { paused: true, name: "s", function_id: "f", cron: "* * * * *" });
      assert.equal((await client.databases.create({ alwaysOn: true })).connectionUrl, "postgres://d");
      assert.deepEqual(JSON.parse(String(arrived.at(-2)?.body)), { always_on: true });
      const app = await client.apps.create({ name: "a", git_url: "g", buildCommand: "make", env: { MY_KEY: "v" } });
      assert.deepEqual(sent(), { name: "a", git_url: "g", build_command: "make", env: { MY_KEY: "v" } });
      assert.deepEqual([app.gitUrl, app.env], ["g", { MY_KEY: "v" }]);
      assert.equal((await client.apps.listEnv("a"))[0]?.createdBy, "me");
      assert.deepEqual((await client.apps.previews()).map(({ id }) => id), ["a"]);
    },
  );
});

test("templates are built from forms", async () => {
  await serving(
    (_, response, count) =>
      json(response, 202, { id: "b", name: "mine", status: ["queued", "running", "done", "failed"][count], error: count === 3 ? "no" : null }),
    async ({ client, arrived }) => {
      const build = await client.templates.buildFromDockerfile({
        name: "mine",
        dockerfile: "FROM base\nCOPY a/b.txt /\n",
        context: { "a/b.txt": "hello" },
        sizeMb: 512,
      });
      const form = String(arrived[0]?.body);
      assert.match(arrived[0]?.headers["content-type"] ?? "", /^multipart\/form-data/);
      for (const part of ['name="name"', 'name="size_mb"', 'name="dockerfile"', 'name="a/b.txt"; filename="b.txt"', "hello"]) {
        assert.ok(form.includes(part), part);
      }
      assert.equal((await client.templates.waitForBuild(build.id, { intervalMs: 1 })).status, "done");
      await assert.rejects(client.templates.waitForBuild(build.id), { name: "TemplateBuildError", message: "no" });
    },
  );
});

test("what the README says runs", { skip: process.env["PANDASTACK_API"] ? false : "PANDASTACK_API is not set" }, async () => {
  const { readFile } = await import("node:fs/promises");
  const { default: ts } = (await import("typescript")) as unknown as { default: typeof import("typescript") };
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, text]) => text ?? "");
  assert.ok(blocks.length >= 9, `${blocks.length} snippets`);
  const place = await mkdtemp(join(tmpdir(), "pandastack-readme-"));
  try {
    // Self-reference works in the package only; elsewhere it is installed.
    await mkdir(join(place, "node_modules/@pandastack"), { recursive: true });
    await symlink(ROOT, join(place, "node_modules/@pandastack/sdk"));
    const imports = blocks.slice(1).flatMap((block) => block.match(/^import .*$/gm) ?? []);
    const bodies = blocks.slice(1).map((block) => `{\n${block.replace(/^import .*$/gm, "")}\n}`);
    const rest = `import { PandaStack } from "@pandastack/sdk";
      ${imports.join("\n")}
      const client = new PandaStack({ timeoutMs: 300_000, maxCreateRetrySeconds: 600 });
      await using sandbox = await client.sandboxes.create({ template: "base" });
      ${bodies.join("\n")}`;
    for (const [index, source] of [blocks[0] ?? "", rest].entries()) {
      const { outputText } = ts.transpileModule(source, {
        compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ES2022 },
      });
      const file = join(place, `${index}.mjs`);
      await writeFile(file, outputText);
      const { stdout } = await run(process.execPath, [file], { timeout: 300_000 });
      const parts = ["hello", "SandboxTimeout begun", "137", "40 120", "7", "look", "42 1 0", "ZeroDivisionError", "'another x'", "echo 9", "/v1/p/", "kept"];
      const said = index === 0 ? ["42"] : parts;
      for (const text of said) assert.ok(stdout.includes(text), `${text} is not in ${stdout}`);
    }
  } finally {
    await rm(place, { recursive: true });
  }
});

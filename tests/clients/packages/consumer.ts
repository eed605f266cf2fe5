// What a strict program relies on in the types. Compiled, and never run.

import Client, { CommandError, PandaStack, Sandbox, type ExecResult, type SandboxInfo } from "@pandastack/sdk";

export async function use(client: PandaStack): Promise<string> {
  await using sandbox: Sandbox = await client.sandboxes.create({ template: "base", ttlSeconds: 60, metadata: { a: "b" } });
  const info: SandboxInfo = sandbox.info;
  const result: ExecResult = await sandbox.exec(["echo", "hello"], { timeoutSeconds: 5 });
  for await (const event of sandbox.execStream("make")) {
    if (event.type === "exit") return `${info.memoryMb} ${event.exitCode}`;
  }
  const children: Sandbox[] = await sandbox.forkTree(2);
  // @ts-expect-error the status of a sandbox is not a number
  const wrong: number = sandbox.status;
  // @ts-expect-error there is no such option
  await sandbox.exec("true", { timeout: 5 });
  return `${result.exitCode} ${children.length} ${wrong}`;
}

export function exitCodeOf(error: unknown): number | undefined {
  return error instanceof CommandError ? error.exitCode : undefined;
}

export const client: PandaStack = new Client({ apiKey: "k", baseUrl: "http://127.0.0.1:1" });

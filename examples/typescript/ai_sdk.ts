/**
 * An agent that writes and runs code: the Vercel AI SDK, its tools in a sandbox.
 *
 * The model asks for tools, they run in a virtual machine of its own, and the SDK goes on until the model is done. Whatever it
 * does there, your machine is not touched; at the end the sandbox is deleted, also when something fails on the way.
 *
 *     npm ci && npm install --no-save ../../sdk/typescript
 *     export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_… ANTHROPIC_API_KEY=…
 *     npm run ai-sdk -- "How many primes are there below 5000?"
 */

import { createAnthropic } from "@ai-sdk/anthropic";
import { PandaStack, SandboxTimeout, type Sandbox } from "@pandastack/sdk";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const MODEL = process.env["ANTHROPIC_MODEL"] ?? "claude-opus-5-5";
const TEMPLATE = process.env["PANDASTACK_TEMPLATE"] ?? "code-interpreter";
const STEPS_MAX = 20;

const SYSTEM = "You have a Linux machine of your own. Use it to find out instead of guessing, and check your results.";

/** What was written until the time was up tells the model what took so long. */
function outputOf(error: unknown): string {
  if (!(error instanceof SandboxTimeout)) throw error;
  return `${error.stdout}${error.stderr}(${error.message})`;
}

/** The tools of one sandbox. What goes wrong in it is a result too: the SDK tells the model what a tool threw. */
function toolsOf(sandbox: Sandbox) {
  // The SDK starts all calls of an answer at once; the model means them one after the other.
  let last: Promise<unknown> = Promise.resolve();
  const inOrder = (work: () => Promise<string>): Promise<string> => {
    const next = last.then(work).catch(outputOf);
    last = next.catch(() => undefined);
    return next;
  };
  return {
    run_python: tool({
      description: "Runs Python code. Variables and imports stay from call to call. The value of the last line is shown.",
      inputSchema: z.object({ code: z.string() }),
      execute: ({ code }) =>
        inOrder(async () => {
          const ran = await sandbox.runCode(code, { timeoutSeconds: 120 });
          return ran.stdout + ran.stderr + (ran.error ?? ran.text ?? "") || "(no output)";
        }),
    }),
    run_command: tool({
      description: "Runs a line of shell, as root. Shows its output and exit code.",
      inputSchema: z.object({ command: z.string() }),
      execute: ({ command }, { abortSignal }) =>
        inOrder(async () => {
          const done = await sandbox.exec(command, { timeoutSeconds: 120, signal: abortSignal });
          return `${done.stdout}${done.stderr}(exit code ${done.exitCode})`;
        }),
    }),
    write_file: tool({
      description: "Writes a text file. A relative path is below /root.",
      inputSchema: z.object({ path: z.string(), content: z.string() }),
      execute: ({ path, content }) =>
        inOrder(async () => {
          const written = await sandbox.filesystem.write(path, content);
          return `wrote ${written.bytes} bytes to ${written.path}`;
        }),
    }),
  };
}

/** Lets the model work on a task, and shows what it does while it does it. */
async function run(task: string): Promise<void> {
  const client = new PandaStack();
  await using sandbox = await client.sandboxes.create({
    template: TEMPLATE,
    ttlSeconds: 600,
    metadata: { example: "ai-sdk" },
  });
  const model = createAnthropic({ baseURL: process.env["ANTHROPIC_BASE_URL"] });
  const work = streamText({
    model: model(MODEL),
    system: SYSTEM,
    prompt: task,
    tools: toolsOf(sandbox),
    stopWhen: stepCountIs(STEPS_MAX),
  });
  for await (const part of work.fullStream) {
    if (part.type === "text-delta") process.stdout.write(part.text);
    else if (part.type === "text-end") process.stdout.write("\n");
    else if (part.type === "tool-call") console.log(`→ ${part.toolName} ${JSON.stringify(part.input)}`);
    else if (part.type === "tool-result") console.log(`← ${String(part.output)}`);
    else if (part.type === "tool-error") console.log(`← failed: ${String(part.error)}`);
    else if (part.type === "error") throw part.error;
  }
  if ((await work.finishReason) === "tool-calls") throw new Error(`not done after ${STEPS_MAX} steps`);
  console.log(`(${(await work.steps).length} steps)`);
}

await run(process.argv.slice(2).join(" ") || "How many primes are there below 5000?");

/**
 * Best of N: one sandbox is prepared, forked, and every child tries another patch at the same time. The best is kept.
 *
 * The patches stand for N answers of a model. Each child is a machine of its own that starts with everything the parent had on
 * its disk and in its memory: a patch that fails, or that never ends, does not disturb the others.
 *
 *     npm ci && npm install --no-save ../../sdk/typescript
 *     export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_…
 *     npm run best-of-n
 */

import { PandaStack, SandboxTimeout, type Sandbox } from "@pandastack/sdk";

const TEMPLATE = process.env["PANDASTACK_TEMPLATE"] ?? "code-interpreter";
const SECONDS_MAX = 10;

const TESTS = `
import time
from solution import fibonacci

begun = time.perf_counter()
for n, wanted in [(0, 0), (1, 1), (2, 1), (10, 55), (26, 121393)]:
    found = fibonacci(n)
    assert found == wanted, f"fibonacci({n}) is {wanted}, not {found}"
print(time.perf_counter() - begun)
`;

const PATCHES: Record<string, string> = {
  "as in the book": `
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
`,
  "off by one": `
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return b
`,
  "a loop": `
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
`,
  "never ends": `
def fibonacci(n):
    while n >= 0:
        pass
`,
};

interface Outcome {
  label: string;
  child: Sandbox;
  /** Seconds that the tests took; none when they did not pass. */
  seconds?: number;
  said: string;
}

/** Applies a patch in a child of the fork and runs the tests there. */
async function attempt(label: string, patch: string, child: Sandbox): Promise<Outcome> {
  await child.filesystem.write("/root/work/solution.py", patch);
  try {
    const tests = await child.exec("cd /root/work && python3 tests.py", { timeoutSeconds: SECONDS_MAX });
    if (tests.exitCode !== 0) return { label, child, said: tests.stderr.trim().split("\n").at(-1) ?? "" };
    const seconds = Number(tests.stdout);
    return { label, child, seconds, said: `passed in ${seconds.toFixed(6)} s` };
  } catch (error) {
    if (error instanceof SandboxTimeout) return { label, child, said: `not done after ${SECONDS_MAX} s` };
    throw error;
  }
}

async function main(): Promise<void> {
  const client = new PandaStack();
  await using parent = await client.sandboxes.create({
    template: TEMPLATE,
    ttlSeconds: 600,
    metadata: { example: "best-of-n" },
  });
  // Think of a repository, its dependencies and a warm cache: children have it all, without doing it again.
  await parent.filesystem.write("/root/work/tests.py", TESTS);

  const children = await parent.forkTree(Object.keys(PATCHES).length);
  try {
    const outcomes = await Promise.all(
      Object.entries(PATCHES).map(([label, patch], index) => attempt(label, patch, children[index]!)),
    );
    for (const { label, said } of outcomes) console.log(`${label.padEnd(16)} ${said}`);

    const passed = outcomes.filter(({ seconds }) => seconds !== undefined);
    const best = passed.sort((one, other) => one.seconds! - other.seconds!)[0];
    if (best === undefined) throw new Error("no patch passed");
    const { deleted } = await best.child.promote({ cleanupSiblings: true });
    console.log(`kept: ${best.label}; ${deleted?.length ?? 0} others are gone`);
    console.log(await best.child.filesystem.read("/root/work/solution.py"));
    console.log(`the parent has a solution: ${await parent.filesystem.exists("/root/work/solution.py")}`);
  } finally {
    await client.sandboxes.deleteAll({ root: parent.id });
  }
}

await main();

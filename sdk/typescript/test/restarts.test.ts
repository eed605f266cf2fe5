/** A server that goes away and comes back, what a block leaves behind, and hints. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { setImmediate } from "node:timers/promises";

import { CommandError, ConflictError, NetworkError } from "@pandastack/sdk";

import { json, sandboxBody, serving, type Handler, type Stage } from "./server.js";

const box: Handler = ({ method }, response) =>
  method === "DELETE" ? response.writeHead(204).end() : json(response, 200, sandboxBody());

/** Lets time pass by itself as soon as nothing else is left to do, and tells how much did. */
async function passing<T>(work: () => Promise<T>): Promise<{ result: PromiseSettledResult<T>; ms: number }> {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const begun = Date.now();
  try {
    let result: PromiseSettledResult<T> | undefined;
    const end = Promise.allSettled([work()]).then(([one]) => (result = one));
    for (let rounds = 0; result === undefined && rounds < 100_000; rounds++) {
      // Connections are refused in real time.
      for (let turns = 0; turns < 20; turns++) await setImmediate();
      mock.timers.tick(50);
    }
    return { result: await end, ms: Date.now() - begun };
  } finally {
    mock.timers.reset();
  }
}

const refused = (result: PromiseSettledResult<unknown>): NetworkError => {
  assert.ok(result.status === "rejected" && result.reason instanceof NetworkError, JSON.stringify(result));
  assert.ok(result.reason.refused, String(result.reason.cause));
  return result.reason;
};

test("a server that restarts is waited for by what may be sent twice", async () => {
  for (const [method, work] of [
    ["DELETE", async (sandbox: Awaited<ReturnType<Stage["client"]["sandboxes"]["get"]>>) => sandbox.delete()],
    ["GET", async (sandbox: Awaited<ReturnType<Stage["client"]["sandboxes"]["get"]>>) => void (await sandbox.refresh())],
  ] as const) {
    await serving(box, async ({ client, port, stop }) => {
      const sandbox = await client.sandboxes.get("box");
      await stop();
      const waiting = work(sandbox);
      await new Promise((resolve) => setTimeout(resolve, 400));
      await serving(
        box,
        async ({ arrived }) => {
          await waiting;
          assert.deepEqual(arrived.map((one) => one.method), [method]);
        },
        {},
        port,
      );
    });
  }
});

test("a server that does not come back is given up, and what may do something twice is sent once", async () => {
  await serving(box, async ({ client, stop }) => {
    const sandbox = await client.sandboxes.get("box");
    await stop();
    const once = await passing(() => sandbox.hibernate());
    refused(once.result);
    assert.ok(once.ms < 250, `${once.ms} ms`);
    const long = await passing(() => sandbox.delete());
    refused(long.result);
    assert.ok(long.ms >= 45_000 && long.ms < 50_000, `${long.ms} ms`);
    const after = await passing(() => sandbox.delete());
    refused(after.result);
    assert.ok(after.ms < 250, `${after.ms} ms`);
  });
});

test("where nothing ever answered, the address is wrong", async () => {
  await serving(box, async ({ client, stop }) => {
    await stop();
    const { result, ms } = await passing(() => client.sandboxes.delete("box"));
    refused(result);
    assert.ok(ms < 250, `${ms} ms`);
  });
});

test("the waiting for a server ends with the signal", async () => {
  await serving(box, async ({ client, stop }) => {
    await client.sandboxes.get("box");
    await stop();
    const reason = new Error("no longer needed");
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 50);
    const events = client.sandboxes.fromInfo({ id: "box" }).events({ signal: controller.signal });
    await assert.rejects(events, reason);
  });
});

test("the error of a block is not replaced by that of its end", async () => {
  const warnings: string[] = [];
  const listen = ({ name, message }: Error) => void (name === "PandaStackWarning" && warnings.push(message));
  process.on("warning", listen);
  try {
    await serving(
      ({ method }, response) =>
        method === "DELETE" ? json(response, 500, { error: "broken" }) : json(response, 201, sandboxBody("left-behind")),
      async ({ client }) => {
        const mine = new Error("mine");
        await assert.rejects(
          (async () => {
            await using _ = await client.sandboxes.create();
            throw mine;
          })(),
          (error: unknown) => error === mine,
        );
        // Whether there is an error of the block cannot be seen, so this is a warning too; `delete` tells the caller.
        {
          await using sandbox = await client.sandboxes.create();
          await assert.rejects(sandbox.delete(), /broken/);
        }
      },
    );
    // Warnings of the process come a turn later.
    await setImmediate();
    assert.deepEqual(warnings, ["sandbox left-behind was not deleted: ServerError: broken"]);
  } finally {
    process.off("warning", listen);
  }
});

test("hints name calls of this package", async () => {
  for (const [there, here] of [
    ["its files are kept; start it cold, from its disk", "sandbox.wake({ cold: true })"],
    ["start it cold, from its disk", "sandbox.wake({ cold: true })"],
    ["raise the timeout, or run it in the background", "sandbox.processes.start("],
    ["send `Authorization: Bearer pds_…`", "apiKey"],
    ['it is closed; create it with network "all", or open the network of this one', 'sandbox.update({ network: "all" })'],
  ] as const) {
    await serving(
      ({ method, path }, response, count) => {
        if (method === "GET") return json(response, 200, sandboxBody());
        if (path.endsWith("/stream")) {
          response.writeHead(200, { "content-type": "text/event-stream" });
          return response.end(`event: exit\ndata: ${JSON.stringify({ exit_code: 1, hint: there })}\n\n`);
        }
        return count === 1
          ? json(response, 409, { error: "what is wrong", hint: there })
          : json(response, 200, { stdout: "", stderr: "", exit_code: 1, hint: there });
      },
      async ({ client }) => {
        const sandbox = await client.sandboxes.get("box");
        const waited = { timeoutSeconds: 5 };
        await assert.rejects(sandbox.exec("true", waited), (error: unknown) => {
          assert.ok(error instanceof ConflictError && error.hint?.includes(here), String(error));
          return true;
        });
        const result = await sandbox.exec("true", waited);
        assert.ok(result.hint?.includes(here), result.hint);
        assert.deepEqual([result.exitCode, result.exit_code], [1, 1]);
        assert.ok((await sandbox.exec("true", { onStdout: () => undefined })).hint?.includes(here));
        await assert.rejects(sandbox.exec("true", { ...waited, check: true }), (error: unknown) => {
          assert.ok(error instanceof CommandError && error.hint?.includes(here), String(error));
          return true;
        });
      },
    );
  }
});

test("a cold start", async () => {
  await serving(box, async ({ client, arrived }) => {
    const sandbox = await client.sandboxes.get("box");
    await sandbox.wake({ cold: true });
    await sandbox.wake({ cold: false });
    await sandbox.wake();
    assert.deepEqual(
      arrived.slice(1).map(({ method, path, body }) => [method, path, String(body)]),
      [
        ["POST", "/v1/sandboxes/box/start", '{"cold":true}'],
        ["POST", "/v1/sandboxes/box/wake", ""],
        ["POST", "/v1/sandboxes/box/wake", ""],
      ],
    );
  });
});

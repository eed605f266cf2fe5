/** Requests, retries and errors, against a server that answers as it is told. */

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import {
  AuthError,
  BadRequestError,
  CapacityError,
  ConflictError,
  NetworkError,
  NotFoundError,
  PandaStack,
  PandaStackError,
  PermissionDeniedError,
  RateLimitError,
  RequestTimeoutError,
  SandboxTimeout,
  ServerError,
} from "@pandastack/sdk";

import { json, sandboxBody, serving } from "./server.js";

test("a request carries the key and a body that leaves out what is absent", async () => {
  await serving(
    (_, response) => json(response, 201, sandboxBody()),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.create({ template: "minimal", ttlSeconds: 60, volumes: [{ name: "data" }], diskGb: 9 });
      assert.equal(sandbox.id, "box");
      const [request] = arrived;
      assert.equal(`${request?.method} ${request?.path}`, "POST /v1/sandboxes");
      assert.equal(request?.headers.authorization, "Bearer pds_test");
      assert.deepEqual(JSON.parse(String(request?.body)), {
        template: "minimal",
        ttl_seconds: 60,
        volumes: [{ name: "data" }],
        disk_gb: 9,
      });
    },
  );
});

test("answers are in camelCase, with the wire's names as hidden aliases and the caller's own keys as they are", async () => {
  await serving(
    (_, response) => json(response, 200, sandboxBody("box", { timings: { load_ms: 1.5, prestarted: true } })),
    async ({ client }) => {
      const { info } = await client.sandboxes.get("box");
      assert.equal(info.memoryMb, 256);
      assert.equal(info.memory_mb, 256);
      assert.equal(info.timings?.loadMs, 1.5);
      assert.deepEqual(info.metadata, { some_key: "kept" });
      assert.equal("guestIp" in info, false);
      assert.equal(Object.keys(info).includes("memory_mb"), false);
    },
  );
});

test("lists may be bare or wrapped", async () => {
  await serving(
    (_, response, count) => json(response, 200, count === 0 ? [sandboxBody()] : { items: [sandboxBody()] }),
    async ({ client }) => {
      assert.equal((await client.sandboxes.list()).length, 1);
      assert.equal((await client.sandboxes.list()).length, 1);
    },
  );
});

test("base addresses may end in slashes, in /v1, or have a path of their own", async () => {
  await serving(
    (_, response) => json(response, 200, { workspace: "w" }),
    async ({ url, arrived }) => {
      for (const end of ["", "/", "/v1", "/v1/", "/prefix", "/prefix/v1"]) {
        await new PandaStack({ apiKey: "k", baseUrl: url + end }).me();
      }
      const paths = arrived.map(({ path }) => path);
      assert.deepEqual(paths.slice(0, 4), Array.from({ length: 4 }, () => "/v1/me"));
      assert.deepEqual(paths.slice(4), ["/prefix/v1/me", "/prefix/v1/me"]);
    },
  );
});

test("names are encoded, and those that would lead elsewhere refused", async () => {
  await serving(
    (_, response) => json(response, 200, sandboxBody()),
    async ({ client, arrived }) => {
      await client.sandboxes.get("a/b?c");
      assert.equal(arrived[0]?.path, "/v1/sandboxes/a%2Fb%3Fc");
      for (const id of ["", ".", ".."]) await assert.rejects(client.sandboxes.get(id), TypeError);
      assert.equal(arrived.length, 1);
    },
  );
});

test("without a key nothing is sent", async () => {
  await serving(
    (_, response) => json(response, 200, {}),
    async ({ url, arrived }) => {
      const saved = { ...process.env };
      for (const name of ["PANDASTACK_API_KEY", "PANDASTACK_TOKEN"]) delete process.env[name];
      process.env["XDG_CONFIG_HOME"] = "/nonexistent";
      try {
        await assert.rejects(new PandaStack({ baseUrl: url }).me(), AuthError);
        assert.equal(arrived.length, 0);
      } finally {
        process.env = saved;
      }
    },
  );
});

test("the environment names the key and the server", () => {
  const saved = { ...process.env };
  try {
    for (const name of ["PANDASTACK_API_KEY", "PANDASTACK_TOKEN", "PANDASTACK_API", "PANDASTACK_API_URL"]) {
      delete process.env[name];
    }
    process.env["XDG_CONFIG_HOME"] = "/nonexistent";
    assert.equal(new PandaStack().baseUrl, "https://api.pandastack.ai");
    process.env["PANDASTACK_TOKEN"] = "pds_token";
    process.env["PANDASTACK_API_URL"] = "http://second:1/";
    let client = new PandaStack();
    assert.deepEqual([client.apiKey, client.baseUrl], ["pds_token", "http://second:1"]);
    process.env["PANDASTACK_API_KEY"] = "pds_key";
    process.env["PANDASTACK_API"] = "http://first:1";
    client = new PandaStack();
    assert.deepEqual([client.apiKey, client.baseUrl], ["pds_key", "http://first:1"]);
    client = new PandaStack({ apiKey: "pds_given", baseUrl: "http://given:1" });
    assert.deepEqual([client.apiKey, client.baseUrl], ["pds_given", "http://given:1"]);
    assert.throws(() => new PandaStack({ baseUrl: "file:///etc" }), TypeError);
  } finally {
    process.env = saved;
  }
});

test("a key that is kept for one server is not shown to another", () => {
  const saved = { ...process.env };
  const place = mkdtempSync(join(tmpdir(), "pandastack-config-"));
  try {
    for (const name of ["PANDASTACK_API_KEY", "PANDASTACK_TOKEN", "PANDASTACK_API", "PANDASTACK_API_URL"]) {
      delete process.env[name];
    }
    process.env["XDG_CONFIG_HOME"] = place;
    mkdirSync(join(place, "pandastack"));
    writeFileSync(join(place, "pandastack", "config.json"), '{"token": "pds_file", "api_url": "http://file:1"}');
    assert.equal(new PandaStack().apiKey, "pds_file");
    assert.equal(new PandaStack({ baseUrl: "http://file:1/v1/" }).apiKey, "pds_file");
    assert.equal(new PandaStack({ baseUrl: "http://other:1" }).apiKey, undefined);
  } finally {
    process.env = saved;
    rmSync(place, { recursive: true });
  }
});

test("statuses are errors with what the server said", async () => {
  const classes: [number, new (...given: never[]) => PandaStackError][] = [
    [400, BadRequestError],
    [401, AuthError],
    [403, PermissionDeniedError],
    [404, NotFoundError],
    [409, ConflictError],
    [413, BadRequestError],
    [429, RateLimitError],
    [500, ServerError],
    [502, ServerError],
    [503, CapacityError],
    [507, CapacityError],
  ];
  await serving(
    ({ query }, response) => {
      const status = Number(query.get("limit"));
      json(response, status, { error: "it is broken", code: "broken", hint: "mend it", request_id: "r-1" });
    },
    async ({ client }) => {
      for (const [status, type] of classes) {
        await assert.rejects(client.audit({ limit: status }), (error: unknown) => {
          assert.ok(error instanceof PandaStackError);
          assert.equal(error.constructor, type);
          assert.equal(error.name, type.name);
          assert.deepEqual(
            [error.message, error.statusCode, error.status, error.code, error.hint, error.requestId],
            ["it is broken", status, status, "broken", "mend it", "r-1"],
          );
          assert.equal(error.response?.status, status);
          return true;
        });
      }
    },
  );
});

test("errors that are not JSON still say something", async () => {
  await serving(
    (_, response, count) => {
      response.writeHead(502, { "x-request-id": "from the header" });
      response.end(count === 0 ? "<html>Bad Gateway</html>" : "");
    },
    async ({ client }) => {
      await assert.rejects(client.me(), { message: "<html>Bad Gateway</html>", requestId: "from the header" });
      await assert.rejects(client.me(), { message: "the server answered 502" });
    },
  );
});

test("an answer that is not JSON is told apart from a broken network", async () => {
  await serving(
    (_, response) => response.end("<html>hello</html>"),
    async ({ client }) => assert.rejects(client.me(), { name: "PandaStackError", message: /not JSON/ }),
  );
});

test("redirects are not followed: they would carry the key elsewhere", async () => {
  await serving(
    (_, response) => response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
    async ({ client, arrived }) => {
      await assert.rejects(client.me(), PandaStackError);
      assert.equal(arrived.length, 1);
    },
  );
});

test("a server that is not there is a network error, and asked once", async () => {
  const client = new PandaStack({ apiKey: "k", baseUrl: "http://127.0.0.1:1" });
  await assert.rejects(client.sandboxes.create(), NetworkError);
});

test("a 404 to a question is asked again once, after a moment", async () => {
  await serving(
    (_, response, count) => (count === 0 ? json(response, 404, { error: "no" }) : json(response, 200, sandboxBody())),
    async ({ client, arrived }) => {
      assert.equal((await client.sandboxes.get("box")).id, "box");
      assert.equal(arrived.length, 2);
      assert.ok((arrived[1]?.at ?? 0) - (arrived[0]?.at ?? 0) >= 190);
    },
  );
  await serving(
    (_, response) => json(response, 404, { error: "no" }),
    async ({ client, arrived }) => {
      await assert.rejects(client.sandboxes.delete("box"), NotFoundError);
      assert.equal(arrived.length, 2);
      await assert.rejects(client.templates.prepare("box"), NotFoundError);
      assert.equal(arrived.length, 3, "a request that changes something is not sent again");
    },
  );
});

test("a server without room is asked again when it says when", async () => {
  const refusals: [number, object, Record<string, string>][] = [
    [503, { error: "no capacity" }, { "retry-after": "0" }],
    [507, { error: "disk full" }, {}],
    [429, { error: "slow down" }, { "retry-after": new Date(Date.now() - 1000).toUTCString() }],
  ];
  for (const [status, body, headers] of refusals) {
    await serving(
      (_, response, count) => (count === 0 ? json(response, status, body, headers) : json(response, 201, sandboxBody())),
      async ({ client, arrived }) => {
        assert.equal((await client.sandboxes.create()).id, "box");
        assert.equal(arrived.length, 2);
        if (status === 507) assert.ok((arrived[1]?.at ?? 0) - (arrived[0]?.at ?? 0) >= 490);
      },
    );
  }
});

test("no other refusal of a creation is retried", async () => {
  const refusals: [number, string, Record<string, string>][] = [
    [503, '{"error":"no capacity"}', {}],
    [503, "upstream is gone", { "retry-after": "0" }],
    [503, '{"error":{"nested":"x"}}', { "retry-after": "0" }],
    [429, '{"error":"quota"}', {}],
    [500, '{"error":"broken"}', { "retry-after": "0" }],
    [502, '{"error":"broken"}', { "retry-after": "0" }],
    [504, '{"error":"broken"}', { "retry-after": "0" }],
    [400, '{"error":"wrong"}', { "retry-after": "0" }],
  ];
  for (const [status, body, headers] of refusals) {
    await serving(
      (_, response) => response.writeHead(status, headers).end(body),
      async ({ client, arrived }) => {
        await assert.rejects(client.sandboxes.create(), { statusCode: status });
        assert.equal(arrived.length, 1, `${status} ${body}`);
      },
    );
  }
});

test("the time for asking again is bounded, and can be none", async () => {
  const full = (_: unknown, response: never) => json(response, 503, { error: "full" }, { "retry-after": "5" });
  await serving(
    full as never,
    async ({ client, arrived }) => {
      await assert.rejects(client.sandboxes.create(), { name: "CapacityError", retryAfter: 5 });
      assert.equal(arrived.length, 1);
    },
    { maxCreateRetrySeconds: 2 },
  );
  await serving(
    (_, response) => json(response, 507, { error: "full" }),
    async ({ client, arrived }) => {
      await assert.rejects(client.sandboxes.create(), CapacityError);
      assert.equal(arrived.length, 1);
    },
    { maxCreateRetrySeconds: 0 },
  );
});

test("forks are retried like creations, other changes are not", async () => {
  await serving(
    ({ path }, response, count) => {
      if (path === "/v1/sandboxes/box") return json(response, 200, sandboxBody());
      if (count === 1) return json(response, 503, { error: "full" }, { "retry-after": "0" });
      if (path.endsWith("/fork")) {
        return json(response, 201, { sandbox: sandboxBody("child"), children: [], errors: [], tree_id: "t" });
      }
      return json(response, 503, { error: "full" }, { "retry-after": "0" });
    },
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      assert.equal((await sandbox.fork()).id, "child");
      assert.equal(arrived.length, 3);
      await assert.rejects(sandbox.hibernate(), CapacityError);
      assert.equal(arrived.length, 4);
    },
  );
});

test("a sandbox that does not answer yet is asked again, for a while", async () => {
  const cold = { error: "dial: connect: connection refused" };
  await serving(
    (_, response, count) => {
      if (count === 0) return json(response, 200, sandboxBody());
      if (count === 1) return json(response, 502, cold);
      return json(response, 200, { stdout: "hi\n", stderr: "", exit_code: 0, duration_ms: 3, process_id: 1, truncated: false });
    },
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      assert.equal((await sandbox.exec("echo hi", { timeoutSeconds: 5 })).stdout, "hi\n");
      assert.equal(arrived.length, 3);
    },
  );
  await serving(
    (_, response, count) => (count === 0 ? json(response, 200, sandboxBody()) : json(response, 502, cold)),
    async ({ client, arrived }) => {
      const sandbox = await client.sandboxes.get("box");
      await assert.rejects(sandbox.filesystem.write("/x", "y"), ServerError);
      assert.equal(arrived.length, 2);
    },
    { execReadyTimeoutMs: 100 },
  );
});

test("a command's timeout is told apart from other failures of the server", async () => {
  for (const [error, expected] of [
    ["command timeout after 1 s", SandboxTimeout],
    ["context deadline exceeded", SandboxTimeout],
    ["broken", ServerError],
  ] as const) {
    await serving(
      (_, response, count) => (count === 0 ? json(response, 200, sandboxBody()) : json(response, 504, { error, request_id: "r" })),
      async ({ client }) => {
        const sandbox = await client.sandboxes.get("box");
        const failed = sandbox.exec("sleep 9", { timeoutSeconds: 1 });
        await assert.rejects(failed, (thrown: unknown) => {
          assert.equal((thrown as Error).constructor, expected);
          assert.deepEqual([(thrown as PandaStackError).statusCode, (thrown as PandaStackError).requestId], [504, "r"]);
          return true;
        });
      },
    );
  }
});

test("answers are waited for only so long, and signals end the waiting", async () => {
  await serving(
    () => undefined,
    async ({ client }) => assert.rejects(client.me(), RequestTimeoutError),
    { timeoutMs: 50 },
  );
  await serving(
    () => undefined,
    async ({ client }) => {
      const signal = AbortSignal.timeout(50);
      await assert.rejects(client.sandboxes.create({ signal }), { name: "TimeoutError" });
      const reason = new Error("no longer needed");
      await assert.rejects(client.sandboxes.create({ signal: AbortSignal.abort(reason) }), reason);
    },
  );
});

test("await using deletes a sandbox, but not one that is persistent or gone", async () => {
  let persistent = false;
  let gone = false;
  await serving(
    ({ method }, response) => {
      if (method === "DELETE") return gone ? json(response, 404, { error: "gone" }) : response.writeHead(204).end();
      return json(response, 201, sandboxBody("box", { persistent }));
    },
    async ({ client, arrived }) => {
      const deletions = () => arrived.filter(({ method }) => method === "DELETE").length;
      {
        await using _ = await client.sandboxes.create();
      }
      assert.equal(deletions(), 1);
      persistent = true;
      {
        await using _ = await client.sandboxes.create();
      }
      assert.equal(deletions(), 1);
      [persistent, gone] = [false, true];
      {
        await using _ = await client.sandboxes.create();
      }
      assert.equal(deletions(), 3);
    },
  );
});

test("preview addresses come from the server's own", () => {
  const at = (baseUrl: string, previewHost?: string) => {
    const client = new PandaStack({ apiKey: "k", baseUrl, previewHost });
    return `${client.previewScheme} .${client.previewSuffix}`;
  };
  assert.equal(at("https://api.example.com"), "https .example.com");
  assert.equal(at("http://sandboxes.example.com:8080"), "https .sandboxes.example.com");
  assert.equal(at("http://192.0.2.7:8080"), "https .192.0.2.7");
  assert.equal(at("http://127.0.0.1:8080/v1"), "http .localhost:8080");
  assert.equal(at("http://[::1]:8080"), "http .localhost:8080");
  assert.equal(at("http://localhost"), "http .localhost");
  assert.equal(at("https://api.localhost:8443"), "https .localhost:8443");
  assert.equal(at("https://api.example.com", ".preview.example.org"), "https .preview.example.org");
});

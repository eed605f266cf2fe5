//! Malformed and hostile input: the contract's error shape, never a 5xx, never a path of the host.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::client::Answer;
use tests::{Api, in_api};

use crate::api::at;

/// Fields of requests' bodies, one of each at least.
const FIELDS: [&str; 13] = [
    "cmd",
    "code",
    "cold",
    "count",
    "data",
    "label",
    "metadata",
    "name",
    "path",
    "port",
    "size_mb",
    "tree_id",
    "ttl_seconds",
];

fn harmless(api: &Api, what: &str, answer: &Answer) -> Result<()> {
    ensure!((400..500).contains(&answer.status), "{what}: {} {}", answer.status, answer.text());
    answer.failure(answer.status).with_context(|| what.to_owned())?;
    let text = answer.text();
    let directory = api.data_dir().to_string_lossy();
    ensure!(
        !text.contains(&*directory) && !text.contains("/tmp/") && !text.contains(".rs:"),
        "{what}: {text}"
    );
    Ok(())
}

#[test]
fn bodies_that_make_no_sense_are_refused() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let deep = "[".repeat(100_000);
        let wide = format!("{{\"cmd\":\"{}\"}}", "x".repeat(9 << 20));
        let wrong = |value: &str| -> String {
            let fields: Vec<_> = FIELDS.iter().map(|field| format!("\"{field}\":{value}")).collect();
            format!("{{{}}}", fields.join(","))
        };
        let (lists, numbers) = (wrong("[[]]"), wrong("1e999"));
        let bodies: [&[u8]; 13] = [
            b"{",
            b"nonsense",
            b"[]",
            b"1",
            b"\"text\"",
            lists.as_bytes(),
            numbers.as_bytes(),
            b"\xff\xfe\x00",
            b"{\"cmd\":\"\xff\"}",
            b"{\"a\":1}trailing",
            deep.as_bytes(),
            wide.as_bytes(),
            b"\0",
        ];
        let routes = [
            (Method::POST, "/v1/sandboxes".to_owned()),
            (Method::POST, at(&id, "/exec")),
            (Method::POST, at(&id, "/exec/stream")),
            (Method::POST, at(&id, "/fork")),
            (Method::POST, at(&id, "/promote")),
            (Method::POST, at(&id, "/processes")),
            (Method::POST, at(&id, "/ports")),
            (Method::POST, at(&id, "/preview-token")),
            (Method::POST, at(&id, "/fs/mkdir")),
            (Method::POST, at(&id, "/repl/sessions/none/run")),
            (Method::POST, at(&id, "/start")),
            (Method::PATCH, at(&id, "/lifecycle")),
            (Method::PATCH, at(&id, "")),
            (Method::POST, "/v1/volumes".to_owned()),
            (Method::POST, "/v1/me/tokens".to_owned()),
        ];
        for (method, path) in &routes {
            for body in bodies {
                let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
                let answer = api.bytes(method.clone(), path, "application/json", body.to_vec()).await?;
                harmless(api, &format!("{method} {path} {shown}"), &answer)?;
            }
        }
        // Whoever sends far too much is still sending when that is clear, and hears why all the same.
        let much = vec![b'x'; 40 << 20];
        let answer = api.bytes(Method::POST, &at(&id, "/exec"), "application/json", much).await?;
        answer.expect(413)?;
        for path in [at(&id, "/exec"), at(&id, "/exec/stream")] {
            let half = api.bytes(Method::POST, &path, "application/json", "{\"cmd\":\"\\ud800\"}").await?;
            harmless(api, "half a character", &half)?;
        }
        // Unknown fields are refused by name; `null` and other content types are fine.
        let unknown = json!({ "cmd": "echo fine", "nonsense": [1] });
        let refused = api.post(&at(&id, "/exec"), unknown).await?.failure(400)?;
        ensure!(refused.contains("unknown field \"nonsense\""), "{refused}");
        let tolerated = json!({ "cmd": "echo fine", "env": null, "cwd": null, "timeout_seconds": null });
        ensure!(api.exec(&id, tolerated).await?["stdout"] == "fine\n");
        let plain =
            api.bytes(Method::POST, &at(&id, "/exec"), "text/plain", "{\"cmd\":\"echo fine\"}").await?;
        ensure!(plain.expect(200)?.json()?["stdout"] == "fine\n");
        ensure!(api.status(&id).await? == "running");
        api.remove(&id).await
    })
}

#[test]
fn names_and_numbers_that_cannot_be_are_refused() -> Result<()> {
    in_api(async |api| {
        let long = "x".repeat(8000);
        let ids = [
            "nonesuch",
            "..",
            "%2e%2e%2f%2e%2e",
            "%00",
            "%ff",
            "a%20b",
            "0",
            "-1",
            "🐼",
            "%F0%9F%90%BC",
            long.as_str(),
            "'; drop table sandboxes; --",
        ];
        for id in ids.map(|id| id.replace('🐼', "%F0%9F%90%BC").replace(' ', "%20")) {
            for rest in [
                "",
                "/lifecycle",
                "/events",
                "/fs?path=/etc/hostname",
                "/ports",
                "/logs",
                "/metrics",
                "/processes",
            ] {
                let answer = api.get(&at(&id, rest)).await?;
                harmless(api, &format!("GET {id}{rest}"), &answer)?;
            }
            harmless(api, &id, &api.post(&at(&id, "/exec"), json!({ "cmd": "true" })).await?)?;
            harmless(api, &id, &api.delete(&at(&id, "")).await?)?;
            harmless(api, &id, &api.get(&format!("/v1/snapshots/{id}")).await?)?;
            harmless(api, &id, &api.get(&format!("/v1/volumes/{id}")).await?)?;
            harmless(api, &id, &api.delete(&format!("/v1/me/tokens/{id}")).await?)?;
        }
        let sandbox = api.create().await?;
        for query in ["tail=-1", "tail=x", "tail=99999999999999999999999", "tail=%ff"] {
            harmless(api, query, &api.get(&at(&sandbox, &format!("/events?{query}"))).await?)?;
            harmless(api, query, &api.get(&at(&sandbox, &format!("/logs?{query}"))).await?)?;
        }
        for many in ["tail=0", "tail=1000000000"] {
            api.get(&at(&sandbox, &format!("/events?{many}"))).await?.expect(200)?;
            api.get(&at(&sandbox, &format!("/logs?{many}"))).await?.expect(200)?;
        }
        harmless(api, "limit", &api.get("/v1/stats/boot?limit=-5").await?)?;
        let large: Value = (0..1000)
            .map(|number| (number.to_string(), json!("x")))
            .collect::<serde_json::Map<_, _>>()
            .into();
        harmless(
            api,
            "metadata",
            &api.post("/v1/sandboxes", json!({ "template": "minimal", "metadata": large })).await?,
        )?;
        let value = json!({ "template": "minimal", "metadata": { "k": "x".repeat(1 << 20) } });
        harmless(api, "metadata", &api.post("/v1/sandboxes", value).await?)?;
        let env = json!({ "template": "minimal", "env": { "K": "x".repeat(1 << 20) } });
        harmless(api, "env", &api.post("/v1/sandboxes", env).await?)?;
        let command = json!({ "cmd": "x".repeat(2 << 20) });
        harmless(api, "cmd", &api.post(&at(&sandbox, "/exec"), command).await?)?;
        let nul = json!({ "cmd": "echo a\0b" });
        harmless(api, "NUL in a command", &api.post(&at(&sandbox, "/exec"), nul).await?)?;
        let arguments = json!({ "argv": ["/nonesuch/program"] });
        let spawn = api.post(&at(&sandbox, "/processes"), arguments).await?;
        ensure!(spawn.status == 201 || (400..503).contains(&spawn.status), "{spawn:?}");
        ensure!(api.shell(&sandbox, "echo alive").await? == "alive");
        api.remove(&sandbox).await
    })
}

#[test]
fn routes_that_are_not_there_say_so() -> Result<()> {
    in_api(async |api| {
        for path in [
            "/",
            "/v1",
            "/v1/",
            "/v2/sandboxes",
            "/v1/nonesuch",
            "/v1/sandboxes/",
            "//v1/sandboxes",
            "/.env",
            "/v1/sandboxes/a/b/c/d",
        ] {
            let answer = api.get(path).await?;
            answer.failure(404).with_context(|| path.to_owned())?;
            ensure!(!answer.header("x-request-id").is_empty());
        }
        for (method, path) in [
            (Method::PUT, "/v1/sandboxes"),
            (Method::POST, "/v1/me"),
            (Method::DELETE, "/healthz"),
            (Method::PATCH, "/v1/volumes"),
        ] {
            let answer = api.request(method, path, None).await?;
            answer.failure(405).with_context(|| path.to_owned())?;
        }
        // What is no HTTP at all ends the connection, and with it nothing else.
        for raw in [
            &b"nonsense\r\n\r\n"[..],
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
            b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /v1/me HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n",
        ] {
            let answer = api.raw(raw).await?;
            ensure!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        let smuggled = b"POST /v1/me/tokens HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\
            Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
        let answer = api.raw(smuggled).await?;
        ensure!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        let many: String =
            (0..500).map(|number| format!("x-header-{number}: {}\r\n", "y".repeat(1000))).collect();
        let answer = api.raw(format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{many}\r\n").as_bytes()).await;
        ensure!(
            answer.map_or(true, |text| text.is_empty() || text.starts_with("HTTP/1.1 4")),
            "half a megabyte of headers was taken"
        );
        api.get("/healthz").await?.expect(200).map(drop)
    })
}

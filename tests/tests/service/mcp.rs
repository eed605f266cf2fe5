//! Both MCP servers: as the protocol's messages, and through the stock client from PyPI.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::TEMPLATE;
use tests::api::client::Client;
use tests::{cache, in_api, program};
use tokio::process::Command;

/// Releases of the client: one that begins with the handshake, and one that first asks in a newer way and falls back to it.
const RELEASES: [&str; 2] = ["1.26.0", "2.3.0"];
/// How long making an environment or running the client may take.
const TIMEOUT: Duration = Duration::from_secs(200);

/// Runs a program to its end; what it wrote.
async fn output(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ran = tokio::time::timeout(TIMEOUT, command.output()).await.context("no end")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(ran.status.success(), "{command:?}: {}\n{}", text(&ran.stdout), text(&ran.stderr));
    Ok(text(&ran.stdout))
}

/// An environment with one release of the client in it, kept between runs.
async fn environment(release: &str) -> Result<PathBuf> {
    let cache = cache::directory()?;
    let _lock = tokio::task::block_in_place(|| cache::lock(&cache.join("mcp.lock")))?;
    let directory = cache.join(format!("mcp-{release}"));
    let python = directory.join("bin/python");
    if !directory.join("complete").exists() {
        output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory)).await?;
        let package = format!("mcp=={release}");
        output(Command::new(&python).args(["-m", "pip", "install", "--quiet", &package])).await?;
        std::fs::write(directory.join("complete"), "")?;
    }
    Ok(python)
}

#[test]
fn the_stock_client_works_with_both_servers() -> Result<()> {
    in_api(async |api| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/mcp_client.py");
        let program = tokio::task::block_in_place(program::path)?;
        for release in RELEASES {
            let python = environment(release).await?;
            let base = format!("http://{}", api.address());
            let key = api.key().context("no key")?;
            let mut command = Command::new(python);
            command.arg(&script).args([&base, TEMPLATE]).arg(program).env("PANDASTACK_API_KEY", key);
            let said = output(&mut command).await?;
            let line: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
            ensure!(line == json!({ "mcp": release, "ok": true }), "{said}");
        }
        let audit = api.get("/v1/audit?limit=1000").await?.expect(200)?.json()?;
        let deleted = |entry: &Value| {
            let path = entry["path"].as_str().unwrap_or_default();
            entry["method"] == "CALL" && path.starts_with("/mcp/delete_sandbox/")
        };
        ensure!(audit["entries"].as_array().is_some_and(|entries| entries.iter().any(deleted)), "{audit}");
        Ok(())
    })
}

/// Sends a message; the status and what came back.
async fn send(api: &Client, path: &str, message: Value) -> Result<(u16, Value)> {
    let answer = api.post(path, message).await?;
    Ok((answer.status, answer.json()?))
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params })
}

#[test]
fn messages_are_answered_as_the_protocol_says() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let inside = format!("/v1/sandboxes/{id}/mcp");
        for (path, quiet) in [("/mcp", 202), ("/v1/mcp", 202), (inside.as_str(), 204)] {
            for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH] {
                api.request(method, path, None).await?.failure(405)?;
            }
            api.without_key().post(path, request("ping", json!({}))).await?.failure(401)?;
            let (status, body) = send(api, path, request("ping", json!({}))).await?;
            ensure!(
                (status, &body) == (200, &json!({ "jsonrpc": "2.0", "id": "a", "result": {} })),
                "{body}"
            );
            let (status, body) = send(api, path, request("resources/list", json!({}))).await?;
            ensure!((status, &body["error"]["code"]) == (200, &json!(-32601)), "{body}");
            let (status, body) =
                send(api, path, request("tools/call", json!({ "name": "no_such_tool" }))).await?;
            ensure!((status, &body["error"]["code"]) == (200, &json!(-32602)), "{body}");
            let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            let (status, body) = send(api, path, note).await?;
            ensure!((status, &body) == (quiet, &Value::Null), "{status} {body}");
            for (text, code) in [
                ("{", -32700),
                ("", -32700),
                ("\u{0}", -32700),
                ("[]", -32600),
                ("7", -32600),
                ("{}", -32600),
            ] {
                let answer = api.bytes(Method::POST, path, "application/json", text).await?.expect(400)?;
                ensure!(answer.json()?["error"]["code"] == code, "{text:?}: {}", answer.text());
            }
            let invalid = api.bytes(Method::POST, path, "application/json", vec![b'"', 0xff, b'"']).await?;
            ensure!(invalid.expect(400)?.json()?["error"]["code"] == -32700);
            let huge = vec![b' '; (1 << 20) + 1];
            api.bytes(Method::POST, path, "application/json", huge).await?.failure(413)?;
            // Arguments that do not fit are told to the model, not to the program.
            for arguments in [json!([1]), json!("x"), json!({ "path": 5, "sandbox_id": 5 }), json!(null)] {
                let call = request("tools/call", json!({ "name": "read_file", "arguments": arguments }));
                let (status, body) = send(api, path, call).await?;
                ensure!(status == 200 && body["result"]["isError"] == true, "{arguments}: {body}");
            }
        }
        let version = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {} });
        let (_, body) = send(api, "/mcp", request("initialize", version.clone())).await?;
        ensure!(body["result"]["protocolVersion"] == "2025-06-18", "{body}");
        ensure!(
            body["result"]["capabilities"]["tools"].is_object() && body["result"]["instructions"].is_string()
        );
        let (_, body) = send(api, "/mcp", request("initialize", json!({}))).await?;
        ensure!(body["result"]["protocolVersion"] == "2025-03-26", "{body}");
        let (_, body) = send(api, &inside, request("initialize", version)).await?;
        ensure!(body["result"]["protocolVersion"] == "2024-11-05", "{body}");

        // Somebody else's sandbox is not there, and not for its tools either.
        let other = api.second_tenant().await?;
        other.post(&inside, request("ping", json!({}))).await?.failure(404)?;
        let call = json!({ "name": "run_command", "arguments": { "sandbox_id": id, "command": "true" } });
        let (status, body) = send(&other, "/mcp", request("tools/call", call)).await?;
        ensure!(status == 200 && body["result"]["isError"] == true, "{body}");
        let text = body["result"]["content"][0]["text"].as_str().context("no text")?;
        ensure!(serde_json::from_str::<Value>(text)?["code"] == "not_found", "{text}");

        // A workspace's tools may be called so often and no more; the other calls go on.
        let call = request("tools/call", json!({ "name": "list_templates" }));
        let mut refused = 0;
        for _ in 0..90 {
            let (status, body) = send(&other, "/v1/mcp", call.clone()).await?;
            ensure!(status == 200, "{body}");
            refused += u32::from(body["error"]["code"] == -32000);
        }
        // One was called above, and a few may have been earned back meanwhile.
        ensure!((1..=31).contains(&refused), "{refused} of 90 were refused");
        ensure!(
            send(&other, "/mcp", request("tools/list", json!({}))).await?.1["result"]["tools"].is_array()
        );
        api.remove(&id).await
    })
}

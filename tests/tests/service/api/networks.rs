//! What sandboxes reach: whose default counts, and how those that reach nothing say so.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::in_api;

use crate::api::at;

#[test]
fn a_closed_network_says_so_at_once() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        // Names are looked up without waiting for servers that cannot be reached.
        let line = "python3 -c \"import socket, time; t = time.monotonic()\ntry: socket.getaddrinfo('example.org', 80)\nexcept OSError as e: print(e, int(time.monotonic() - t)); raise SystemExit(3)\"";
        let answer = api.exec(&id, json!({ "cmd": line })).await?;
        ensure!(answer["exit_code"] == 3, "{answer}");
        let took = answer["duration_ms"].as_u64().context("no time")?;
        ensure!(took < tests::wait::scaled(Duration::from_secs(10)).as_millis() as u64, "{answer}");
        let hint = answer["hint"].as_str().with_context(|| format!("no hint: {answer}"))?;
        ensure!(hint.contains("network is closed"), "{hint}");
        let failed = api.exec(&id, json!({ "cmd": "echo other; false" })).await?;
        ensure!(failed.get("hint").is_none(), "{failed}");

        // Opening it tells the guest whom to ask, closing it takes that back.
        let opened = api.patch(&at(&id, ""), json!({ "network": "all" })).await?.expect(200)?.json()?;
        ensure!(opened["network"] == "all", "{opened}");
        let warning = opened["warnings"][0].as_str().with_context(|| format!("no warning: {opened}"))?;
        ensure!(warning.contains("uplink"), "{warning}");
        // Every later answer says so too, as long as it holds.
        ensure!(api.get(&at(&id, "")).await?.json()?["warnings"] == opened["warnings"]);
        ensure!(
            api.shell(&id, "cat /etc/resolv.conf").await? == format!("nameserver {}", tests::NAME_SERVER)
        );
        let closed = api.patch(&at(&id, ""), json!({ "network": "none" })).await?.expect(200)?.json()?;
        ensure!(closed.get("warnings").is_none(), "{closed}");
        ensure!(api.shell(&id, "grep -c nameserver /etc/resolv.conf || true").await? == "0");
        // What the user chose stays.
        api.shell(&id, "echo nameserver 10.0.0.1 > /etc/resolv.conf").await?;
        api.patch(&at(&id, ""), json!({ "network": "all" })).await?.expect(200)?;
        ensure!(api.shell(&id, "cat /etc/resolv.conf").await? == "nameserver 10.0.0.1");
        api.remove(&id).await
    })
}

#[test]
fn a_workspace_has_a_default_of_its_own() -> Result<()> {
    in_api(async |api| {
        let theirs = api.second_tenant().await?;
        let default = async || -> Result<Value> {
            Ok(theirs.get("/v1/me").await?.expect(200)?.json()?["network_default"].clone())
        };
        ensure!(default().await? == Value::Null);
        let network = async |request: Value| -> Result<Value> {
            let id = theirs.create_with(request).await?;
            let sandbox = theirs.get(&at(&id, "")).await?.expect(200)?.json()?;
            theirs.remove(&id).await?;
            Ok(sandbox["network"].clone())
        };
        ensure!(network(json!({})).await? == "none");
        let changed =
            theirs.patch("/v1/me", json!({ "network_default": "all" })).await?.expect(200)?.json()?;
        ensure!(changed["network_default"] == "all" && default().await? == "all", "{changed}");
        ensure!(network(json!({})).await? == "all" && network(json!({ "network": "none" })).await? == "none");
        // What is absent stays, `null` takes it back.
        theirs.patch("/v1/me", json!({})).await?.expect(200)?;
        ensure!(default().await? == "all");
        theirs.patch("/v1/me", json!({ "network_default": "some" })).await?.failure(400)?;
        let writer = theirs.post("/v1/me/tokens", json!({ "scope": "write" })).await?.expect(201)?.json()?;
        let writer = theirs.with_key(writer["token"].as_str().context("no key")?);
        writer.patch("/v1/me", json!({ "network_default": "none" })).await?.failure(403)?;
        theirs.patch("/v1/me", json!({ "network_default": null })).await?.expect(200)?;
        ensure!(default().await? == Value::Null && network(json!({})).await? == "none");
        ensure!(api.get("/v1/me").await?.json()?["network_default"] == Value::Null);
        Ok(())
    })
}

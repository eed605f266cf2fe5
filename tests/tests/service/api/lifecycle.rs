//! Making, pausing, sleeping, waking, idling, deleting.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::api::{TEMPLATE, list};
use tests::{in_api, wait};

use crate::api::at;

/// How long an idle sandbox may be looked at until the server has put it away.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_sandbox_lives_and_every_request_may_be_repeated() -> Result<()> {
    in_api(async |api| {
        let made =
            api.post("/v1/sandboxes", json!({ "template": "minimal", "metadata": { "task": "42" } })).await?;
        let made = made.expect(201)?.json()?;
        let id = made["id"].as_str().context("no id")?.to_owned();
        ensure!(made["status"] == "running" && made["metadata"]["task"] == "42", "{made}");
        ensure!(made["cpu"].is_u64() && made["memory_mb"].is_u64() && made["boot_ms"].is_u64(), "{made}");
        ensure!(made["timings"]["confirm_ms"].is_number() && made["persistent"] == false, "{made}");
        let read = api.get(&at(&id, "")).await?.expect(200)?.json()?;
        ensure!(read["created_at"] == made["created_at"] && read["unique_bytes"].is_u64(), "{read}");
        let listed = api.get("/v1/sandboxes").await?.expect(200)?.json()?;
        ensure!(list(&listed, "id")?.contains(&id), "not listed: {listed}");

        for _ in 0..2 {
            api.post_nothing(&at(&id, "/pause")).await?.expect(204)?;
        }
        ensure!(api.status(&id).await? == "paused");
        api.post(&at(&id, "/exec"), json!({ "cmd": "true" })).await?.failure(409)?;
        for _ in 0..2 {
            api.post(&at(&id, "/resume"), json!({})).await?.expect(204)?;
        }
        // A process that only lives in memory.
        api.shell(&id, "setsid sleep 9999 >/dev/null 2>&1 & echo $! > /run/pid; echo disk > /root/disk")
            .await?;
        for _ in 0..2 {
            let text =
                api.bytes(Method::POST, &at(&id, "/hibernate"), "text/plain;charset=UTF-8", "").await?;
            ensure!(text.expect(200)?.json()? == json!({ "status": "hibernated" }));
        }
        for reading in ["", "/lifecycle", "/events", "/ports", "/logs", "/metrics"] {
            let answer = api.get(&at(&id, reading)).await?;
            ensure!(matches!(answer.status, 200 | 409), "{reading}: {answer:?}");
            ensure!(api.status(&id).await? == "hibernated", "GET {reading} woke it");
        }
        api.get(&format!("/v1/snapshots?sandbox_id={id}")).await?.expect(200)?;
        api.patch(&at(&id, ""), json!({ "metadata": { "more": "1", "task": null } })).await?.expect(200)?;
        ensure!(api.status(&id).await? == "hibernated", "something woke it");
        for _ in 0..2 {
            let woken = api.post_nothing(&at(&id, "/wake")).await?.expect(200)?.json()?;
            ensure!(woken == json!({ "status": "running" }), "{woken}");
        }
        ensure!(api.shell(&id, "kill -0 $(cat /run/pid) && cat /root/disk").await? == "disk");
        api.post(&at(&id, "/stop"), json!({})).await?.expect(200)?;
        // Using it wakes it.
        ensure!(api.shell(&id, "kill -0 $(cat /run/pid) && echo alive").await? == "alive");
        api.post(&at(&id, "/hibernate"), json!({})).await?.expect(200)?;
        api.get(&at(&id, "/fs?path=/root/disk")).await?.expect(200)?;
        ensure!(api.status(&id).await? == "running", "reading a file did not wake it");
        api.post_nothing(&at(&id, "/start")).await?.expect(200)?;

        let changed = api.get(&at(&id, "")).await?.json()?;
        ensure!(changed["metadata"]["more"] == "1" && changed["metadata"].get("task").is_none(), "{changed}");
        api.remove(&id).await?;
        api.get(&at(&id, "")).await?.failure(404)?;
        api.delete(&at(&id, "")).await?.failure(404)?;
        api.post(&at(&id, "/exec"), json!({ "cmd": "true" })).await?.failure(404)?;
        Ok(())
    })
}

#[test]
fn what_is_asked_for_at_once_is_done_once() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        api.shell(&id, "echo kept > /run/memory").await?;
        let path = |verb: &str| at(&id, &format!("/{verb}"));
        for _ in 0..2 {
            let (sleep, twice) = (path("hibernate"), path("hibernate"));
            let (sleep, twice) = tokio::join!(api.post_nothing(&sleep), api.post_nothing(&twice));
            sleep?.expect(200)?;
            twice?.expect(200)?;
            let (wake, other) = (path("wake"), path("wake"));
            let (wake, other, memory) = tokio::join!(
                api.post_nothing(&wake),
                api.post_nothing(&other),
                api.shell(&id, "cat /run/memory")
            );
            wake?.expect(200)?;
            other?.expect(200)?;
            ensure!(memory? == "kept");
        }
        // Whichever comes first, both end, and the sandbox is gone.
        let (delete, again) = (at(&id, ""), at(&id, ""));
        let (delete, again) = tokio::join!(api.delete(&delete), api.delete(&again));
        let statuses = [delete?.status, again?.status];
        ensure!(
            statuses.contains(&204) && statuses.iter().all(|code| matches!(code, 204 | 404)),
            "{statuses:?}"
        );
        api.get(&at(&id, "")).await?.failure(404).map(drop)
    })
}

#[test]
fn an_idle_sandbox_goes_or_sleeps() -> Result<()> {
    in_api(async |api| {
        let busy = api.create_with(json!({ "ttl_seconds": 2 })).await?;
        let idle = api.create_with(json!({ "ttl_seconds": 1 })).await?;
        let kept = api.create_with(json!({ "ttl_seconds": 1, "persistent": true })).await?;
        let explored = json!({ "explore": "1", "explore_ttl": "1" });
        let explored = api.create_with(json!({ "metadata": explored })).await?;
        // A command under way is not idleness.
        let long = api.exec(&busy, json!({ "cmd": "sleep 4; echo done" })).await?;
        ensure!(long["stdout"] == "done\n", "{long}");
        let gone = async |id: &str| Ok(api.get(&at(id, "")).await?.status == 404);
        wait::until_async("the idle one goes", IDLE_TIMEOUT, async || gone(&idle).await).await?;
        wait::until_async("the explored one goes", IDLE_TIMEOUT, async || gone(&explored).await).await?;
        wait::until_async("the busy one goes when it is done", IDLE_TIMEOUT, async || gone(&busy).await)
            .await?;
        let asleep = async || Ok(api.status(&kept).await? == "hibernated");
        wait::until_async("the persistent one sleeps", IDLE_TIMEOUT, asleep).await?;
        ensure!(api.shell(&kept, "echo woken").await? == "woken");
        api.remove(&kept).await
    })
}

#[test]
fn idle_time_can_be_changed() -> Result<()> {
    in_api(async |api| {
        let id = api.create_with(json!({ "ttl_seconds": 100 })).await?;
        let path = at(&id, "/lifecycle");
        let read = api.get(&path).await?.expect(200)?.json()?;
        ensure!(
            read["ttl_seconds"] == 100 && read["persistent"] == false && read["idle_seconds"].is_u64(),
            "{read}"
        );
        let changed = api.patch(&path, json!({ "ttl_seconds": 7200 })).await?.expect(200)?.json()?;
        ensure!(changed["ttl_seconds"] == 7200 && changed["persistent"] == false, "{changed}");
        let changed = api.patch(&path, json!({ "persistent": true })).await?.expect(200)?.json()?;
        ensure!(changed["ttl_seconds"] == 7200 && changed["persistent"] == true, "{changed}");
        for wrong in [json!(-1), json!(i64::MAX), json!("soon"), json!(1e300)] {
            let answer = api.patch(&path, json!({ "ttl_seconds": wrong })).await?;
            ensure!(answer.status == 400, "{wrong}: {answer:?}");
        }
        let refused =
            api.post("/v1/sandboxes", json!({ "template": "minimal", "ttl_seconds": i64::MAX })).await?;
        // A published client looks for these words and tries again without.
        ensure!(refused.failure(400)?.contains("ttl_seconds exceeds tier maximum"));
        api.patch(&at("nobody", "/lifecycle"), json!({ "ttl_seconds": 1 })).await?.failure(404)?;
        api.remove(&id).await
    })
}

#[test]
fn a_larger_disk_is_the_guests() -> Result<()> {
    in_api(async |api| {
        let asked = |gib: i64| json!({ "template": TEMPLATE, "disk_gb": gib });
        for bad in [-1, 65, i64::MAX] {
            let refused = api.post("/v1/sandboxes", asked(bad)).await?;
            ensure!(refused.failure(400)?.contains("disk_gb must be between 1 and 64"));
        }
        let made = api.post("/v1/sandboxes", asked(3)).await?.expect(201)?.json()?;
        let id = made["id"].as_str().context("no id")?.to_owned();
        let size = api.shell(&id, "df -m --output=size / | tail -1").await?;
        let mib: u64 = size.trim().parse().context("no size")?;
        ensure!(mib > 2800, "{mib} MiB");
        let kept = api.post_nothing(&at(&id, "/snapshots")).await?.expect(201)?.json()?;
        let snapshot = kept["id"].as_str().context("no snapshot")?;
        let smaller = api.post("/v1/sandboxes", json!({ "from_snapshot": snapshot, "disk_gb": 1 })).await?;
        ensure!(smaller.failure(400)?.contains("a disk can only grow"));
        api.delete(&format!("/v1/snapshots/{snapshot}")).await?;
        api.remove(&id).await
    })
}

#[test]
fn a_template_that_is_not_there_is_named() -> Result<()> {
    in_api(async |api| {
        let unknown = api.post("/v1/sandboxes", json!({ "template": "nonesuch" })).await?;
        ensure!(unknown.failure(400)?.contains("unknown template \"nonesuch\""));
        for bad in ["../minimal", "a b", "é", "minimal\0"] {
            api.post("/v1/sandboxes", json!({ "template": bad })).await?.failure(400)?;
        }
        let templates = api.get("/v1/templates").await?.expect(200)?.json()?;
        let names = list(&templates, "name")?;
        ensure!(
            ["base", "code-interpreter", "minimal"].iter().all(|name| names.contains(&(*name).to_owned()))
        );
        let alias: Value = api.get("/v1/templates/ubuntu-24.04").await?.expect(200)?.json()?;
        ensure!(alias["is_global"] == true && alias["cpu"].is_u64(), "{alias}");
        api.get("/v1/templates/nonesuch").await?.failure(404).map(drop)
    })
}

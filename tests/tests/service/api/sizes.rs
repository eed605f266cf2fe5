//! Sandboxes of a size that is not their template's own: prepared once, kept, and kept by whatever comes of them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::api::Api;
use tests::{in_api, wait};

use crate::api::at;

/// How long a template may take to be prepared in another size.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(200);

/// What a guest says about its size.
const MEASURE: &str = "echo $(nproc) $(awk '/MemTotal/ {print $2}' /proc/meminfo)";

/// Makes a sandbox whose template has to be prepared first; its object.
async fn create_patiently(api: &Api, request: &Value) -> Result<Value> {
    let mut made = None;
    wait::until_async("the size is prepared", PREPARE_TIMEOUT, async || {
        let answer = api.post("/v1/sandboxes", request.clone()).await?;
        if answer.status == 503 {
            let body = answer.json()?;
            ensure!(body["code"] == "template_preparing" && answer.header("retry-after") == "2", "{body}");
            let progress = &body["progress"];
            ensure!(progress["step"].as_str().is_some_and(|step| !step.is_empty()), "{body}");
            ensure!(progress["started_at"].as_str() <= progress["changed_at"].as_str(), "{body}");
            ensure!(
                body["hint"].as_str().is_some_and(|hint| hint.contains("template prepare minimal")),
                "{body}"
            );
            return Ok(false);
        }
        made = Some(answer.expect(201)?.json()?);
        Ok(true)
    })
    .await?;
    made.context("nothing was made")
}

async fn expect_size(api: &Api, id: &str) -> Result<()> {
    let object = api.get(&at(id, "")).await?.expect(200)?.json()?;
    ensure!(object["cpu"] == 2 && object["memory_mb"] == 512, "{object}");
    let measured = api.shell(id, MEASURE).await?;
    let (cpus, kib) = measured.split_once(' ').context("no size")?;
    let mib = kib.parse::<u64>()? >> 10;
    ensure!(cpus == "2" && (400..=512).contains(&mib), "{measured}");
    Ok(())
}

#[test]
fn a_sandbox_has_the_size_that_was_asked_for() -> Result<()> {
    in_api(async |api| {
        let request = json!({ "template": "minimal", "cpu": 2, "memory_mb": 500, "disk_gb": 2 });
        let made = create_patiently(api, &request).await?;
        let id = made["id"].as_str().context("no id")?.to_owned();
        ensure!(made["template"] == "minimal" && made["disk_gb"] == 2, "{made}");
        expect_size(api, &id).await?;
        // The second finds what was prepared for the first.
        let second =
            api.post("/v1/sandboxes", json!({ "template": "minimal", "cpu": 2, "memory_mb": 512 })).await?;
        let second = second.expect(201)?.json()?;
        ensure!(second["disk_gb"] == 1, "{second}");
        api.remove(second["id"].as_str().context("no id")?).await?;
        // And the template itself is what it was.
        let plain = api.create().await?;
        let object = api.get(&at(&plain, "")).await?.json()?;
        ensure!(object["cpu"] == 1 && object["memory_mb"] == 256 && object["disk_gb"] == 1, "{object}");
        ensure!(api.shell(&plain, "nproc").await? == "1");
        api.remove(&plain).await?;

        let forked = api.post_nothing(&at(&id, "/fork")).await?.expect(201)?.json()?;
        let child = forked["children"][0]["id"].as_str().with_context(|| format!("no child: {forked}"))?;
        expect_size(api, child).await?;
        api.post_nothing(&at(&id, "/hibernate")).await?.expect(200)?;
        expect_size(api, &id).await?;
        let snapshot = api.post_nothing(&at(&id, "/snapshots")).await?.expect(201)?.json()?;
        let snapshot = snapshot["id"].as_str().context("no snapshot")?;
        let other = json!({ "from_snapshot": snapshot, "memory_mb": 1024 });
        let refused = api.post("/v1/sandboxes", other).await?.failure(400)?;
        ensure!(refused.contains("keeps its size"), "{refused}");
        let restored = api.create_with(json!({ "from_snapshot": snapshot, "cpu": 2 })).await?;
        expect_size(api, &restored).await?;
        for id in [&restored, child, &id] {
            api.remove(id).await?;
        }
        api.delete(&format!("/v1/snapshots/{snapshot}")).await?.expect(204).map(drop)
    })
}

#[test]
fn sizes_beyond_the_operators_bounds_are_refused() -> Result<()> {
    in_api(async |api| {
        for (size, bounds) in [
            (json!({ "cpu": 5 }), "between 1 and 4"),
            (json!({ "cpu": -1 }), "cpu"),
            (json!({ "memory_mb": 64 }), "between 128 and 2048"),
            (json!({ "memory_mb": 2049 }), "between 128 and 2048"),
            (json!({ "memory_mb": i64::MAX }), "memory_mb"),
        ] {
            let mut request = size.clone();
            request["template"] = "minimal".into();
            let refused = api.post("/v1/sandboxes", request).await?.failure(400)?;
            ensure!(refused.contains(bounds), "{size}: {refused}");
        }
        Ok(())
    })
}

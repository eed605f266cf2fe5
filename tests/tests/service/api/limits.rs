//! Quotas and rates: refused in the way that clients tell apart, and without leaving anything behind.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::{Api, ApiSettings, run, wait};

use crate::api::at;

/// How long a full bucket may take to let somebody through again.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn limits_hold_and_refusals_leave_nothing() -> Result<()> {
    run(async || {
        let mut settings = ApiSettings::new("limits");
        settings.control.quota.sandboxes = 2;
        settings.control.quota.snapshots = 1;
        settings.control.quota.volumes = 1;
        settings.control.quota.volume_mib = 100;
        settings.control.rate_burst = 300.0;
        settings.control.rate_per_second = 20.0;
        let api = Api::start_with(settings).await?;
        let id = api.create().await?;
        // All or nothing: two children would be one too many.
        let many = api.post(&at(&id, "/fork-tree"), json!({ "count": 2 })).await?;
        many.failure(429)?;
        ensure!(many.header("retry-after").is_empty(), "waiting does not help against a quota");
        let other = api.create().await?;
        let full = api.post("/v1/sandboxes", json!({ "template": "minimal" })).await?;
        ensure!(full.failure(429)?.contains('2') && full.header("retry-after").is_empty(), "{}", full.text());
        api.remove(&other).await?;
        let again = api.create().await?;
        api.remove(&again).await?;

        api.post_nothing(&at(&id, "/snapshots")).await?.expect(201)?;
        api.post_nothing(&at(&id, "/snapshots")).await?.failure(429)?;
        api.post("/v1/volumes", json!({ "name": "a", "size_mb": 101 })).await?.failure(429)?;
        api.post("/v1/volumes", json!({ "name": "a", "size_mb": 50 })).await?.expect(201)?;
        api.post("/v1/volumes", json!({ "name": "b", "size_mb": 20 })).await?.failure(429)?;
        api.patch("/v1/volumes/a", json!({ "size_mb": 101 })).await?.failure(429)?;
        let volume = api.get("/v1/volumes/a").await?.expect(200)?.json()?;
        ensure!(volume["size_mb"] == 50, "{volume}");

        // Another tenant asks too often; this one is not slowed down by that.
        let other = api.second_tenant().await?;
        let mut refused = None;
        for _ in 0..5000 {
            let answer = other.get("/v1/me").await?;
            if answer.status != 200 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.context("5000 requests in a row were taken")?;
        refused.failure(429)?;
        let seconds: f64 = refused.header("retry-after").parse()?;
        ensure!(seconds > 0.0 && seconds <= 60.0, "{seconds}");
        api.get("/v1/me").await?.expect(200)?;
        let taken = async || Ok(other.get("/v1/me").await?.status == 200);
        wait::until_async("requests are taken again", TIMEOUT, taken).await?;
        api.finish().await
    })
}

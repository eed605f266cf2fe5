//! Snapshots that outlive what they were taken of.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::api::list;
use tests::in_api;

use crate::api::at;

#[test]
fn a_snapshot_outlives_its_sandbox() -> Result<()> {
    in_api(async |api| {
        let parent = api.create_with(json!({ "metadata": { "kind": "parent" } })).await?;
        api.shell(&parent, "echo disk > /root/disk; echo memory > /run/memory").await?;
        api.shell(&parent, "setsid sleep 8888 >/dev/null 2>&1 & echo $! > /run/pid").await?;
        let taken = api.post_nothing(&at(&parent, "/snapshots")).await?.expect(201)?.json()?;
        let id = taken["id"].as_str().context("no id")?.to_owned();
        ensure!(
            taken["snapshot_id"] == id && taken["sandbox_id"] == parent && taken["created_at"].is_string(),
            "{taken}"
        );
        ensure!(taken.get("mem_path").is_none() && taken.get("state_path").is_none(), "a host path: {taken}");
        api.shell(&parent, "echo later > /root/disk").await?;
        // A sandbox that sleeps can be kept too.
        api.post_nothing(&at(&parent, "/hibernate")).await?.expect(200)?;
        let second = api.post(&at(&parent, "/snapshots"), json!({})).await?.expect(201)?.json()?;
        let listed = api.get(&format!("/v1/snapshots?sandbox_id={parent}")).await?.expect(200)?.json()?;
        let expected = [second["id"].as_str().context("no id")?, &id];
        ensure!(list(&listed["snapshots"], "id")? == expected, "newest first: {listed}");
        ensure!(
            list(&api.get("/v1/snapshots").await?.expect(200)?.json()?["snapshots"], "id")?.contains(&id)
        );
        ensure!(
            api.get("/v1/snapshots?sandbox_id=nonesuch").await?.expect(200)?.json()?
                == json!({ "snapshots": [] })
        );
        api.remove(&parent).await?;

        let read = api.get(&format!("/v1/snapshots/{id}")).await?.expect(200)?.json()?;
        ensure!(read["template"] == "minimal" && read["size_bytes"].as_u64() > Some(0), "{read}");
        let child = api.create_with(json!({ "from_snapshot": id })).await?;
        let said =
            api.shell(&child, "cat /root/disk /run/memory; kill -0 $(cat /run/pid) && echo alive").await?;
        ensure!(said == "disk\nmemory\nalive", "{said}");
        let object = api.get(&at(&child, "")).await?.json()?;
        ensure!(object["from_snapshot"] == id && object["template"] == "minimal", "{object}");
        let grandchild = api.post_nothing(&at(&child, "/snapshots")).await?.expect(201)?.json()?;
        ensure!(grandchild["parent_snapshot_id"] == id, "{grandchild}");
        // What was made of it does not need it.
        api.delete(&format!("/v1/snapshots/{id}")).await?.expect(204)?;
        api.get(&format!("/v1/snapshots/{id}")).await?.failure(404)?;
        api.delete(&format!("/v1/snapshots/{id}")).await?.failure(404)?;
        api.post("/v1/sandboxes", json!({ "from_snapshot": id })).await?.failure(404)?;
        ensure!(api.shell(&child, "cat /root/disk").await? == "disk");
        api.post("/v1/sandboxes", json!({ "from_snapshot": "../../etc" })).await?.failure(404)?;
        for left in [&second["id"], &grandchild["id"]] {
            let left = left.as_str().context("no id")?;
            api.delete(&format!("/v1/snapshots/{left}")).await?.expect(204)?;
        }
        api.remove(&child).await
    })
}

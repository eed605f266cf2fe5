//! Volumes through HTTP: attached, kept, refused.

use anyhow::{Result, ensure};
use serde_json::json;
use tests::api::list;
use tests::in_api;

use crate::api::at;

#[test]
fn a_volume_outlives_the_sandboxes_that_use_it() -> Result<()> {
    in_api(async |api| {
        let made =
            api.post("/v1/volumes", json!({ "name": "data", "size_mb": 64 })).await?.expect(201)?.json()?;
        ensure!(made["name"] == "data" && made["size_mb"] == 64 && made["size_bytes"] == 64 << 20, "{made}");
        api.post("/v1/volumes", json!({ "name": "data", "size_mb": 64 })).await?.failure(409)?;
        for wrong in [json!(0), json!(-5), json!(1), json!(65_537), json!(i64::MAX), json!("64"), json!(1.5)]
        {
            api.post("/v1/volumes", json!({ "name": "wrong", "size_mb": wrong })).await?.failure(400)?;
        }
        for wrong in ["", "../x", "a/b", ".hidden", "é", &"x".repeat(200)] {
            api.post("/v1/volumes", json!({ "name": wrong })).await?.failure(400)?;
        }
        // The suites' hosts have no room for this.
        let full = api.post("/v1/volumes", json!({ "name": "huge", "size_mb": 65_536 })).await?;
        ensure!(!full.failure(507)?.is_empty());
        let names = list(&api.get("/v1/volumes").await?.expect(200)?.json()?, "name")?;
        ensure!(names.contains(&"data".to_owned()) && !names.contains(&"huge".to_owned()), "{names:?}");

        let writer = api.create_with(json!({ "volumes": [{ "name": "data" }] })).await?;
        api.shell(&writer, "mount /dev/vdb /mnt && echo kept > /mnt/file && umount /mnt").await?;
        let object = api.get(&at(&writer, "")).await?.json()?;
        ensure!(
            object["volumes"] == json!([{ "name": "data", "read_only": false, "device": "/dev/vdb" }]),
            "{object}"
        );
        let attached = api.get("/v1/volumes/data").await?.expect(200)?.json()?;
        ensure!(attached["attached_to"] == json!([writer]), "{attached}");
        let refused = api.delete("/v1/volumes/data").await?;
        ensure!(refused.failure(409)?.contains(&writer), "{}", refused.text());
        ensure!(refused.json()?["hint"].as_str().is_some_and(|hint| hint.contains("delete that sandbox")));
        let twice = json!({ "template": "minimal", "volumes": [{ "name": "data", "read_only": true }] });
        api.post("/v1/sandboxes", twice).await?.failure(409)?;
        api.post_nothing(&at(&writer, "/snapshots")).await?.failure(409)?;
        api.post_nothing(&at(&writer, "/fork")).await?.failure(409)?;
        let grown = api.patch("/v1/volumes/data", json!({ "size_mb": 96 })).await?.expect(200)?.json()?;
        ensure!(grown["size_mb"] == 96, "{grown}");
        ensure!(api.shell(&writer, "cat /sys/class/block/vdb/size").await? == (96 * 2048).to_string());
        api.patch("/v1/volumes/data", json!({ "size_mb": 64 })).await?.failure(400)?;
        api.remove(&writer).await?;

        let read_only = json!({ "volumes": [{ "name": "data", "read_only": true }] });
        let (one, other) = (api.create_with(read_only.clone()).await?, api.create_with(read_only).await?);
        for reader in [&one, &other] {
            ensure!(api.shell(reader, "mount -o ro /dev/vdb /mnt && cat /mnt/file").await? == "kept");
        }
        for id in [one, other] {
            api.remove(&id).await?;
        }
        for wrong in ["mnt", "/", "/proc/x", "/a/../b"] {
            let request = json!({ "template": "minimal", "volumes": [{ "name": "data", "mount": wrong }] });
            api.post("/v1/sandboxes", request).await?.failure(400)?;
        }
        let mounted = json!([{ "name": "data", "read_only": true, "mount": "/srv/data" }]);
        let reader = api.create_with(json!({ "volumes": mounted })).await?;
        ensure!(api.shell(&reader, "cat /srv/data/file").await? == "kept");
        let object = api.get(&at(&reader, "")).await?.json()?;
        ensure!(object["volumes"][0]["mount"] == "/srv/data", "{object}");
        api.remove(&reader).await?;
        let missing = json!({ "template": "minimal", "volumes": [{ "name": "nonesuch" }] });
        api.post("/v1/sandboxes", missing).await?.failure(404)?;
        let double = json!({ "template": "minimal", "volumes": [{ "name": "data" }, { "name": "data" }] });
        api.post("/v1/sandboxes", double).await?.failure(400)?;
        api.delete("/v1/volumes/data").await?.expect(204)?;
        api.get("/v1/volumes/data").await?.failure(404)?;
        api.delete("/v1/volumes/data").await?.failure(404).map(drop)
    })
}

//! Whatever somebody else has is not there.

use anyhow::{Result, ensure};
use serde_json::json;
use tests::form::Form;
use tests::registry::{shell_tree, tarball};

use crate::templates::{Folder, TIMEOUT, in_server};

#[test]
fn templates_are_their_tenants_own() -> Result<()> {
    in_server(async |api| {
        let folder = Folder::new("foreign")?;
        let rootfs = tarball(&shell_tree(&folder.0, "mine")?)?;
        let form = || Form::new(&[("name", "private"), ("size_mb", "256")]);
        let build = api.built(form().file("rootfs", &rootfs), TIMEOUT).await?;
        let id = build["id"].as_str().unwrap_or_default();
        let other = api.second_tenant().await?;
        other.get("/v1/templates/private").await?.failure(404)?;
        other.delete("/v1/templates/private").await?.failure(404)?;
        other.post_nothing("/v1/templates/private/prepare").await?.failure(404)?;
        other.get(&format!("/v1/templates/builds/{id}")).await?.failure(404)?;
        other.get(&format!("/v1/templates/builds/{id}/logs")).await?.failure(404)?;
        other.delete(&format!("/v1/templates/builds/{id}")).await?.failure(404)?;
        let refused = other.post("/v1/sandboxes", json!({ "template": "private" })).await?.failure(400)?;
        let unknown = other.post("/v1/sandboxes", json!({ "template": "nonesuch" })).await?.failure(400)?;
        ensure!(refused.replace("private", "nonesuch") == unknown, "{refused} {unknown}");
        ensure!(other.get("/v1/templates/builds").await?.expect(200)?.json()? == json!([]));
        let listed = other.get("/v1/templates").await?.expect(200)?.json()?;
        ensure!(
            listed.as_array().is_some_and(|all| all.iter().all(|one| one["is_global"] == true)),
            "{listed}"
        );
        // The name is free for them, and theirs is another.
        std::fs::write(folder.0.join("tree/mark"), "theirs")?;
        let theirs = other.built(form().file("rootfs", &tarball(&folder.0.join("tree"))?), TIMEOUT).await?;
        ensure!(theirs["owner_workspace"] != build["owner_workspace"]);
        let sandbox = other.create_with(json!({ "template": "private" })).await?;
        ensure!(other.shell(&sandbox, "read mark < /mark; echo $mark").await? == "theirs");
        other.remove(&sandbox).await?;
        other.delete("/v1/templates/private").await?.expect(204)?;
        ensure!(api.get("/v1/templates/private").await?.expect(200)?.json()?["status"] == "ready");
        api.delete("/v1/templates/private").await?.expect(204).map(drop)
    })
}

//! Variables and secret metadata reach the guest, and nobody else.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::in_api;

use crate::api::at;

#[test]
fn values_of_variables_are_never_shown() -> Result<()> {
    in_api(async |api| {
        let secret = "hunter2-swordfish";
        let env = json!({ "TOKEN": secret, "PLAIN": "a" });
        let body =
            json!({ "template": "minimal", "env": env, "metadata": { "secret.key": secret, "open": "yes" } });
        let made = api.post("/v1/sandboxes", body).await?.expect(201)?;
        let id = made.json()?["id"].as_str().context("no id")?.to_owned();
        ensure!(api.shell(&id, "echo $TOKEN").await? == secret);
        let patched = json!({ "env": { "TOKEN": null, "OTHER": secret } });
        let patched = api.patch(&at(&id, ""), patched).await?.expect(200)?;
        ensure!(patched.json()?["env_names"] == json!(["OTHER", "PLAIN"]), "{}", patched.text());
        ensure!(api.shell(&id, "echo $TOKEN$OTHER$PLAIN").await? == format!("{secret}a"));
        let override_one = json!({ "cmd": "echo $PLAIN", "env": { "PLAIN": "b" } });
        ensure!(api.exec(&id, override_one).await?["stdout"] == "b\n");
        let snapshot = api.post_nothing(&at(&id, "/snapshots")).await?.expect(201)?;
        let fork = api.post_nothing(&at(&id, "/fork")).await?.expect(201)?;
        let child = fork.json()?["sandbox"]["id"].as_str().context("no child")?.to_owned();
        ensure!(api.shell(&child, "echo $OTHER").await? == secret, "a child has its parent's variables");
        let snapshot_id = snapshot.json()?["id"].as_str().context("no id")?.to_owned();
        let mut seen = vec![made, patched, snapshot, fork];
        for path in
            ["/v1/sandboxes", &at(&id, ""), &at(&id, "/events"), &at(&id, "/lifecycle"), "/v1/snapshots"]
        {
            seen.push(api.get(path).await?.expect(200)?);
        }
        for path in [&format!("/v1/snapshots/{snapshot_id}"), "/v1/audit", "/metrics", &at(&id, "/logs")] {
            seen.push(api.get(path).await?.expect(200)?);
        }
        for answer in seen {
            ensure!(!answer.text().contains(secret), "a secret is shown: {}", answer.text());
        }
        for wrong in [
            json!({ "A=B": "x" }),
            json!({ "": "x" }),
            json!({ "A": "x\0y" }),
            json!({ "1A": "x" }),
            json!({ "A": 1 }),
        ] {
            api.post("/v1/sandboxes", json!({ "template": "minimal", "env": wrong })).await?.failure(400)?;
        }
        api.delete(&format!("/v1/snapshots/{snapshot_id}")).await?.expect(204)?;
        for id in [child, id] {
            api.remove(&id).await?;
        }
        Ok(())
    })
}

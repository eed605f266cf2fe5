//! Keys: what each allows, and when it stops.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::api::{KEY, list};
use tests::{in_api, wait};

use crate::api::at;

fn key(made: &Value) -> Result<(&str, &str)> {
    let token = made["token"].as_str().context("no key")?;
    let prefix = made["prefix"].as_str().context("no prefix")?;
    ensure!(token.starts_with("pds_") && token.starts_with(prefix) && prefix.len() == 12, "{made}");
    Ok((token, prefix))
}

#[test]
fn a_key_allows_what_it_was_made_for() -> Result<()> {
    in_api(async |api| {
        let id = api.create().await?;
        let make = async |body: Value| -> Result<Value> {
            api.post("/v1/me/tokens", body).await?.expect(201)?.json()
        };
        let read = make(json!({ "label": "reader", "scope": "read" })).await?;
        let write = make(json!({ "name": "writer", "scope": "write" })).await?;
        let plain = make(json!({})).await?;
        ensure!(
            read["label"] == "reader" && write["label"] == "writer" && plain["scope"] == "admin",
            "{plain}"
        );
        let (reader, writer) = (api.with_key(key(&read)?.0), api.with_key(key(&write)?.0));
        for path in [
            "/v1/sandboxes",
            &at(&id, ""),
            &at(&id, "/lifecycle"),
            &at(&id, "/events"),
            "/v1/volumes",
            "/v1/me",
        ] {
            reader.get(path).await?.expect(200)?;
        }
        reader.post("/v1/sandboxes", json!({ "template": "minimal" })).await?.failure(403)?;
        reader.post(&at(&id, "/exec"), json!({ "cmd": "true" })).await?.failure(403)?;
        reader.post_nothing(&at(&id, "/pause")).await?.failure(403)?;
        reader.post_nothing(&at(&id, "/fork")).await?.failure(403)?;
        reader.put(&at(&id, "/fs?path=/x"), "x").await?.failure(403)?;
        reader.delete(&at(&id, "")).await?.failure(403)?;
        reader.post("/v1/me/tokens", json!({ "scope": "read" })).await?.failure(403)?;
        ensure!(writer.shell(&id, "echo written").await? == "written");
        writer.post("/v1/me/tokens", json!({ "scope": "admin" })).await?.failure(403)?;
        writer.get("/v1/me/tokens").await?.failure(403)?;
        for wrong in
            [json!({ "scope": "root" }), json!({ "expires_in_days": -1 }), json!({ "expires_in_days": 1e12 })]
        {
            api.post("/v1/me/tokens", wrong).await?.failure(400)?;
        }
        let listed = api.get("/v1/me/tokens").await?.expect(200)?;
        ensure!(
            listed.json()?.is_array()
                && !listed.text().contains(key(&plain)?.0)
                && !listed.text().contains(KEY)
        );
        let prefixes = list(&listed.json()?, "prefix")?;
        ensure!(
            [&read, &write, &plain]
                .iter()
                .all(|made| key(made).is_ok_and(|(_, prefix)| prefixes.contains(&prefix.to_owned())))
        );
        // A revoked key is refused from the very next request on.
        writer.get("/v1/me").await?.expect(200)?;
        api.delete(&format!("/v1/me/tokens/{}", key(&write)?.1)).await?.expect(204)?;
        writer.get("/v1/me").await?.failure(401)?;
        api.delete("/v1/me/tokens/pds_nonesuch").await?.failure(404)?;
        // An expired one too: this one lives for a second.
        let brief = make(json!({ "label": "brief", "expires_in_days": 1.0 / 86_400.0 })).await?;
        let brief = api.with_key(key(&brief)?.0);
        let refused = async || Ok(brief.get("/v1/me").await?.status == 401);
        wait::until_async("the key expires", Duration::from_secs(60), refused).await?;
        for made in [read, plain] {
            api.delete(&format!("/v1/me/tokens/{}", key(&made)?.1)).await?.expect(204)?;
        }
        api.remove(&id).await
    })
}

#[test]
fn without_a_key_nothing_is_told() -> Result<()> {
    in_api(async |api| {
        let nobody = [
            api.without_key(),
            api.with_key(""),
            api.with_key("pds_wrong"),
            api.with_key(&"pds_a".repeat(5000)),
        ];
        for client in nobody {
            let answer = client.get("/v1/sandboxes").await?;
            ensure!(answer.failure(401)?.starts_with("unauthorized"), "{}", answer.text());
            client.post("/v1/sandboxes", json!({})).await?.failure(401)?;
        }
        let query = api.without_key();
        query.get(&format!("/v1/sandboxes?access_token={KEY}")).await?.expect(200)?;
        query.get("/v1/sandboxes?access_token=pds_wrong").await?.failure(401).map(drop)
    })
}

//! Another tenant's key opens nothing: every route of the document is walked with it.

use anyhow::{Context, Result, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tests::in_api;

use crate::api::at;

/// What one tenant has, for the other to ask for.
struct Belongings {
    sandbox: String,
    process: String,
    context: String,
    snapshot: String,
    volume: String,
    prefix: String,
    organisation: String,
}

impl Belongings {
    /// A path of the document with everything filled in.
    fn fill(&self, path: &str) -> Result<String> {
        let mut filled = path.to_owned();
        if let Some(rest) = filled.strip_prefix("/v1/snapshots/{id}") {
            filled = format!("/v1/snapshots/{}{rest}", self.snapshot);
        }
        if let Some(rest) = filled.strip_prefix("/v1/orgs/{id}") {
            filled = format!("/v1/orgs/{}{rest}", self.organisation);
        }
        let known = [
            ("{id}", self.sandbox.as_str()),
            ("{process}", &self.process),
            ("{context}", &self.context),
            ("{name}", &self.volume),
            ("{prefix}", &self.prefix),
            ("{port}", "8000"),
            ("{lang}", "python"),
            ("{language}", "python"),
            ("{rest}", "index.html"),
            ("{*rest}", "index.html"),
            ("{path}", "index.html"),
            ("{*path}", "index.html"),
            ("{token}", "nonesuch"),
        ];
        for (name, value) in known {
            filled = filled.replace(name, value);
        }
        if filled.contains('{') {
            bail!("{path}: tell this test what to put there");
        }
        Ok(filled)
    }
}

/// A body that is good enough for an operation: what its schema has of these fields.
fn body(document: &Value, path: &str, operation: &Value) -> Value {
    let some = json!({
        "cmd": "true",
        "code": "true",
        "language": "bash",
        "mode": "0644",
        "operation": "read",
        "path": "/x",
        "port": 8000,
        "template": "nonesuch",
        "to": "/y",
    });
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let schema = match schema["$ref"].as_str().and_then(|named| named.strip_prefix('#')) {
        Some(pointer) => document.pointer(pointer).unwrap_or(&Value::Null),
        None => schema,
    };
    // A context has its language.
    let refused = |field: &str| field == "language" && path.contains("{context}");
    let wanted = |field: &&String| schema["properties"].get(field.as_str()).is_some() && !refused(field);
    let fields = some.as_object().into_iter().flatten();
    fields.filter(|(field, _)| wanted(field)).map(|(field, value)| (field.clone(), value.clone())).collect()
}

#[test]
fn every_route_hides_what_is_somebody_elses() -> Result<()> {
    in_api(async |api| {
        let sandbox = api.create_with(json!({ "metadata": { "whose": "mine-alone" } })).await?;
        let process = api
            .post(&at(&sandbox, "/processes"), json!({ "cmd": "sleep 9999" }))
            .await?
            .expect(201)?
            .json()?;
        let context = api
            .post(&at(&sandbox, "/repl/sessions"), json!({ "language": "bash" }))
            .await?
            .expect(201)?
            .json()?;
        let snapshot = api.post_nothing(&at(&sandbox, "/snapshots")).await?.expect(201)?.json()?;
        api.post("/v1/volumes", json!({ "name": "mine-alone", "size_mb": 16 })).await?.expect(201)?;
        let token = api.post("/v1/me/tokens", json!({ "label": "mine-alone" })).await?.expect(201)?.json()?;
        let me = api.get("/v1/me").await?.expect(200)?.json()?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("not a text");
        let mine = Belongings {
            sandbox: sandbox.clone(),
            process: process["id"].to_string(),
            context: text(&context["id"])?,
            snapshot: text(&snapshot["id"])?,
            volume: "mine-alone".to_owned(),
            prefix: text(&token["prefix"])?,
            organisation: text(&me["current_org_id"])?,
        };
        let other = api.second_tenant().await?;
        let document = api.get("/openapi.json").await?.expect(200)?.json()?;
        let mut walked = 0;
        for (path, item) in document["paths"].as_object().context("no paths")? {
            for (method, operation) in item.as_object().context("no methods")? {
                let open = operation["security"]
                    .as_array()
                    .is_some_and(|needed| needed.iter().any(|one| one == &json!({})));
                let filled = mine.fill(path)?;
                let method = Method::from_bytes(method.to_uppercase().as_bytes())?;
                // Templates are everybody's, and a second key of the same kind may have a volume of the same name.
                if open || path.starts_with("/v1/templates") {
                    continue;
                }
                let has_path = operation["parameters"].as_array().is_some_and(|parameters| {
                    parameters.iter().any(|one| one["in"] == "query" && one["name"] == "path")
                });
                let query = if has_path { "?path=/etc/hostname" } else { "" };
                let has_body = method != Method::GET && method != Method::DELETE;
                let body = has_body.then(|| body(&document, path, operation));
                let answer = other.request(method.clone(), &format!("{filled}{query}"), body).await?;
                walked += 1;
                if path.contains('{') {
                    // A WebSocket's route may first say that this is no WebSocket.
                    let hidden = answer.status == 404
                        || (answer.status == 400 && operation.to_string().contains("101"));
                    ensure!(hidden, "{method} {path}: {} {}", answer.status, answer.text());
                } else {
                    ensure!(answer.status < 500, "{method} {path}: {} {}", answer.status, answer.text());
                }
                for secret in [mine.snapshot.as_str(), &mine.context, "mine-alone", &mine.organisation] {
                    // A name that was asked for may be repeated; nothing else may be told.
                    let asked = filled.contains(secret);
                    ensure!(
                        asked || !answer.text().contains(secret),
                        "{method} {path} tells {}",
                        answer.text()
                    );
                }
            }
        }
        ensure!(walked > 50, "only {walked} routes were walked");
        // Using what is somebody else's, by name, in a request of one's own.
        other.post("/v1/sandboxes", json!({ "from_snapshot": mine.snapshot })).await?.failure(404)?;
        let volume = json!({ "template": "minimal", "volumes": [{ "name": "mine-alone" }] });
        other.post("/v1/sandboxes", volume).await?.failure(404)?;
        ensure!(other.get("/v1/sandboxes").await?.expect(200)?.json()? == json!([]));
        ensure!(other.get("/v1/snapshots").await?.expect(200)?.json()? == json!({ "snapshots": [] }));
        let header = [
            ("x-pandastack-org", mine.organisation.as_str()),
            ("x-fcs-workspace", mine.organisation.as_str()),
        ];
        let tricked =
            other.send(Method::GET, "/v1/sandboxes", &header, tests::api::client::nothing()).await?;
        ensure!(other.read(tricked).await?.json()? == json!([]), "a header chose the tenant");
        // All of it is still there.
        ensure!(api.shell(&sandbox, "echo untouched").await? == "untouched");
        api.get(&format!("/v1/snapshots/{}", mine.snapshot)).await?.expect(200)?;
        api.get("/v1/volumes/mine-alone").await?.expect(200)?;
        let key = api.with_key(token["token"].as_str().context("no key")?);
        key.get("/v1/me").await?.expect(200)?;
        api.delete(&format!("/v1/snapshots/{}", mine.snapshot)).await?.expect(204)?;
        api.delete("/v1/volumes/mine-alone").await?.expect(204)?;
        api.remove(&sandbox).await
    })
}

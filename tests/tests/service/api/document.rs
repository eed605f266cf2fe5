//! The document that describes the API, kept in the repository so that every change of it is seen.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::in_api;

/// Set to `1`, the kept document is written anew.
const UPDATE: &str = "PANDASTACK_UPDATE_OPENAPI";

#[test]
fn the_document_in_the_repository_is_the_served_one() -> Result<()> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let now = serde_json::to_value(server::openapi())?;
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        std::fs::write(&kept, format!("{}\n", serde_json::to_string_pretty(&now)?)).context("write it")?;
    }
    let kept: Value = serde_json::from_slice(&std::fs::read(&kept).context("read docs/openapi.json")?)?;
    ensure!(kept == now, "docs/openapi.json is not what the code says: run this test with {UPDATE}=1");
    in_api(async |api| {
        let served = api.without_key().get("/openapi.json").await?.expect(200)?;
        ensure!(served.json()? == kept && served.header("content-type").starts_with("application/json"));
        ensure!(kept["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        Ok(())
    })
}

/// Generators of clients name functions after operations: each has an id of its own, in the same form.
#[test]
fn every_operation_has_an_id_of_its_own() -> Result<()> {
    let document = serde_json::to_value(server::openapi())?;
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in item.as_object().context("no methods")? {
            let id =
                operation["operationId"].as_str().with_context(|| format!("{method} {path} has no id"))?;
            let is_plain = id.starts_with(|first: char| first.is_ascii_lowercase())
                && id.chars().all(|one| one.is_ascii_alphanumeric());
            ensure!(is_plain, "{method} {path}: {id} is not in camel case");
            ensure!(ids.insert(id.to_owned()), "{method} {path}: {id} is another operation too");
        }
    }
    Ok(())
}

//! What is refused, and how. Nothing of a request that was refused is left.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::json;
use tests::form::Form;

use crate::templates::in_server;

/// A good form but for what a test adds.
fn form() -> Form {
    Form::new(&[("name", "asked"), ("dockerfile", "FROM minimal")])
}

fn leftovers(api: &tests::Api) -> Result<usize> {
    let builds = api.node().builds_directory();
    let count = |folder: &str| -> Result<usize> {
        Ok(std::fs::read_dir(builds.join(folder))?
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("upload-"))
                    || folder == "uploads"
            })
            .count())
    };
    Ok(count("staging")? + count("uploads")?)
}

#[test]
fn hostile_names_of_parts_are_refused() -> Result<()> {
    in_server(async |api| {
        let before = leftovers(api)?;
        let deep = vec!["a"; 100].join("/");
        let hostile = [
            "/etc/passwd",
            "../../etc/passwd",
            "a/../../b",
            "..",
            ".",
            "a//b",
            "a/",
            "",
            "a\\b",
            deep.as_str(),
        ];
        for name in hostile {
            let sentence = api.ask_build(form().file(name, b"x")).await?.failure(400)?;
            ensure!(sentence.contains("context") || sentence.contains("name"), "{name:?}: {sentence}");
        }
        let twice = form().file("a", b"1").file("a", b"2");
        ensure!(api.ask_build(twice).await?.failure(400)?.contains("twice"));
        for (one, other) in [("a", "a/b"), ("a/b", "a")] {
            let both = form().file(one, b"1").file(other, b"2");
            ensure!(api.ask_build(both).await?.failure(400)?.contains("directory"));
        }
        tests::wait::until("nothing is left", std::time::Duration::from_secs(60), || {
            leftovers(api).is_ok_and(|left| left <= before)
        })
        .await?;
        ensure!(!std::path::Path::new("/etc/passwd/x").exists());
        Ok(())
    })
}

#[test]
fn forms_that_make_no_sense_are_refused() -> Result<()> {
    in_server(async |api| {
        let ask = async |fields: &[(&str, &str)], status: u16| {
            api.ask_build(Form::new(fields)).await?.failure(status)
        };
        let image = ("image_ref", "127.0.0.1:1/nobody/is-there");
        ask(&[image], 400).await?;
        ask(&[("name", "x")], 400).await?;
        ask(&[("name", "builds"), image], 400).await?;
        ask(&[("name", "../x"), image], 400).await?;
        ask(&[("name", "x"), image, ("size_mb", "1000000")], 400).await?;
        ask(&[("name", "x"), image, ("cpu", "0")], 400).await?;
        ask(&[("name", "x"), image, ("memory_mb", "1")], 400).await?;
        ask(&[("name", "x"), image, ("dockerfile", "FROM minimal")], 400).await?;
        ask(&[("name", "x"), ("image_ref", "not a name")], 400).await?;
        for name in ["minimal", "base", "ubuntu-24.04"] {
            ask(&[("name", name), image], 403).await?;
            ask(&[("name", name), image, ("replace", "true")], 403).await?;
        }
        let large = vec![b'x'; 51 << 20];
        api.ask_build(form().file("large", &large)).await?.failure(413)?;
        let long = "#".repeat(3 << 20);
        api.ask_build(Form::new(&[("name", "x"), ("dockerfile", &long)])).await?.failure(413)?;
        api.ask_build_cut_off(form().file("a", b"half")).await?.failure(400)?;
        let url = "/v1/templates/build";
        api.bytes(Method::POST, url, "multipart/form-data", "no boundary").await?.failure(400)?;
        api.bytes(Method::POST, url, "application/x-www-form-urlencoded", "name=x").await?.failure(400)?;
        api.post(url, json!({ "name": "x" })).await?.failure(400)?;
        api.without_key().ask_build(form()).await?.failure(401)?;
        let reader = api.post("/v1/me/tokens", json!({ "label": "looks", "scope": "read" })).await?.json()?;
        let reader = api.with_key(reader["token"].as_str().context("no key")?);
        reader.ask_build(form()).await?.failure(403)?;
        reader.get("/v1/templates/builds").await?.expect(200)?;
        reader.delete("/v1/templates/anything").await?.failure(403)?;
        Ok(())
    })
}

#[test]
fn what_everybody_has_stays() -> Result<()> {
    in_server(async |api| {
        api.delete("/v1/templates/minimal").await?.failure(403)?;
        api.delete("/v1/templates/ubuntu-24.04").await?.failure(403)?;
        api.delete("/v1/templates/nonesuch").await?.failure(404)?;
        api.get("/v1/templates/nonesuch").await?.failure(404)?;
        api.post_nothing("/v1/templates/nonesuch/prepare").await?.failure(404)?;
        for id in ["nonesuch", "..", "%2e%2e%2fx"] {
            api.get(&format!("/v1/templates/builds/{id}")).await?.failure(404)?;
            api.get(&format!("/v1/templates/builds/{id}/logs?follow=1")).await?.failure(404)?;
            api.delete(&format!("/v1/templates/builds/{id}")).await?.failure(404)?;
        }
        let global = api.get("/v1/templates/minimal").await?.expect(200)?.json()?;
        ensure!(global["is_global"] == true && global["rootfs_path"] == "", "{global}");
        ensure!(global["size_on_disk"]["unique_bytes"].as_u64() > Some(0), "{global}");
        Ok(())
    })
}

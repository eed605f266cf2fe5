//! A host without room: builds are refused or say why they failed, nothing stays of them, and the server goes on.

use std::fs::{File, read_dir, remove_file};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde_json::json;
use tests::form::Form;
use tests::registry::{shell_tree, tarball};
use tests::{Api, run_for, wait};

use crate::templates::{Folder, TEST_TIMEOUT, TIMEOUT, settings};

/// What is left: enough to go on, and less than a build needs.
const LEFT_BYTES: u64 = 256 << 20;

#[test]
fn a_full_host_takes_no_builds_and_goes_on() -> Result<()> {
    run_for(TEST_TIMEOUT, async || {
        let api = Api::start_with(settings("full")).await?;
        let folder = Folder::new("full")?;
        let rootfs = tarball(&shell_tree(&folder.0, "there is room")?)?;
        let form = || Form::new(&[("name", "roomy"), ("size_mb", "256")]).file("rootfs", &rootfs);
        let builds = api.node().builds_directory();
        let filler = builds.join("filler");
        let free = || statvfs(&builds).map_or(0, |space| space.f_bavail * space.f_frsize);
        let file = File::create(&filler)?;
        fallocate(&file, FallocateFlags::empty(), 0, free().saturating_sub(LEFT_BYTES))?;

        let refused = api.ask_build(form()).await?.failure(507)?;
        ensure!(refused.contains("room"), "{refused}");
        ensure!(api.get("/v1/templates/builds").await?.expect(200)?.json()? == json!([]));
        let form_without_files =
            Form::new(&[("name", "cramped"), ("dockerfile", "FROM minimal\nRUN echo never\n")]);
        let id = api.start_build(form_without_files).await?;
        let build = api.ended_build(&id, TIMEOUT).await?;
        let error = build["error"].as_str().context("no error")?;
        ensure!(build["status"] == "failed" && error.contains("no space left"), "{build}");
        for folder in ["staging", "uploads", "templates"] {
            wait::until("nothing is left of them", TIMEOUT, || {
                read_dir(builds.join(folder)).is_ok_and(|mut left| left.next().is_none())
            })
            .await?;
        }

        drop(file);
        remove_file(&filler)?;
        wait::until("there is room again", TIMEOUT, || free() > 4 << 30).await?;
        api.built(form(), TIMEOUT).await?;
        let sandbox = api.create_with(json!({ "template": "roomy" })).await?;
        ensure!(api.shell(&sandbox, "read mark < /mark; echo $mark").await? == "there is room");
        api.finish().await
    })
}

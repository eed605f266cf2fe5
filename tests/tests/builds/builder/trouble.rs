//! Builds that meet trouble of others: a registry that breaks off, a host that runs out of room.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use builder::BuildError;
use tests::{run_for, wait};
use tokio_util::sync::CancellationToken;

use crate::builder::frail::{Breaks, Frail};
use crate::builder::registry::Registry;
use crate::builder::{Site, TIMEOUT};

/// Writes more than is left, some time after it said so.
const LATE_WRITER: &str = "FROM minimal\nRUN echo first\nRUN echo begun; sleep 5; \
    head -c 96M /dev/zero > /big\n";

#[test]
fn a_registry_breaks_off_in_the_middle_of_a_layer() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("frail").await?;
        let registry = Registry::start(&site.files)?;
        let (layout, image) = tokio::task::block_in_place(|| site.small_image())?;
        let name = registry.push("team/frail", &layout, &image).await?;
        let path = name.strip_prefix(&registry.host).context("another registry")?;

        let dying = Frail::start(&registry.host, Breaks::ForGood).await?;
        let failed = site.dockerfile(&format!("FROM {}{path}\nRUN true\n", dying.host)).await;
        ensure!(matches!(failed.error()?, BuildError::Pull { .. }), "{:?}", failed.built);
        let text = failed.error()?.to_string();
        ensure!(text.contains(&dying.host) && text.contains("could not be pulled"), "{text}");
        ensure!(dying.broken() == 1, "it was never asked for a layer: {text}");
        // Nothing stays of what never came whole.
        let content = site.lab.node().builds_directory().join("oci");
        let is_empty = |folder: &str| {
            fs::read_dir(content.join(folder)).is_ok_and(|mut entries| entries.next().is_none())
        };
        wait::until("nothing of the image is kept", Duration::from_secs(60), || {
            is_empty("blobs/sha256") && is_empty(".staging")
        })
        .await?;

        let frail = Frail::start(&registry.host, Breaks::Once).await?;
        let built = site.dockerfile(&format!("FROM {}{path}\nRUN true\n", frail.host)).await;
        built.disk()?;
        ensure!(frail.broken() == 1, "it was never asked for a layer");
        drop(registry);
        site.tidy().await
    })
}

#[test]
fn a_host_runs_out_of_room_while_a_step_writes() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("late").await?;
        let filler = site.lab.pool().join("filler");
        let filled = OnceLock::new();
        let watch = |line: &str| {
            if line.ends_with(" begun") {
                filled.get_or_init(|| fill(&filler).map_err(|error| error.to_string()));
            }
        };
        let never = CancellationToken::new();
        let full = site.build_until(site.source(LATE_WRITER), &never, &watch).await;
        ensure!(matches!(filled.get(), Some(Ok(_))), "{filled:?}\n{}", full.text());
        ensure!(matches!(full.error()?, BuildError::NoSpace), "{:?}\n{}", full.built, full.text());
        fs::remove_file(&filler)?;
        let pool = site.lab.pool();
        let room = || rustix::fs::statvfs(&pool).is_ok_and(|space| space.f_bavail * space.f_frsize > 1 << 30);
        wait::until("there is room again", Duration::from_secs(60), room).await?;
        // What was done before is whole, and the rest can be done.
        let again = site.dockerfile(LATE_WRITER).await;
        ensure!(again.step("RUN echo first")? == "CACHED", "{}", again.text());
        again.disk()?;
        site.tidy().await
    })
}

/// Leaves no more than a little.
fn fill(filler: &std::path::Path) -> Result<()> {
    let file = fs::File::create(filler)?;
    let space = rustix::fs::statvfs(filler)?;
    let bytes = (space.f_bavail * space.f_frsize).saturating_sub(16 << 20);
    Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

//! What `RUN --mount=type=cache` leaves for later builds.

use std::fs;

use anyhow::{Context, Result, ensure};
use builder::BuilderSettings;
use tests::{run_for, wait};

use crate::builder::image::inspect;
use crate::builder::{Site, TIMEOUT};

fn text(first: &str, second: &str) -> String {
    format!("FROM minimal\nRUN echo {first} > /first\nRUN --mount=type=cache,target=/cache,uid=7 {second}\n")
}

#[test]
fn caches_are_kept_for_their_owner() -> Result<()> {
    run_for(TIMEOUT, async || {
        let site = Site::open("caches").await?;
        let leaving =
            text("one", "test ! -e /cache/left && stat -c owner:%u /cache && echo left > /cache/left");
        let left = site.dockerfile(&leaving).await;
        ensure!(left.text().contains(" owner:7"), "{}", left.text());
        ensure!(inspect(&left.disk()?.disk, "stat /cache")?.trim().is_empty(), "the cache is in the image");

        // Another step before it: nothing of this is a layer that was kept, but the cache is there.
        let finding = text("two", "cat /cache/left > /found && echo more > /cache/more && exit 3");
        let failed = site.dockerfile(&finding).await;
        ensure!(failed.error()?.to_string().contains("exit code 3"), "{}", failed.text());
        // What a step left that failed is there too.
        let found = site.dockerfile(&text("three", "cat /cache/left /cache/more > /found")).await;
        ensure!(inspect(&found.disk()?.disk, "cat /found")? == "left\nmore\n", "{}", found.text());

        // Somebody else has a cache of their own, and neither sees what the other's steps made of theirs.
        let theirs = site.dockerfile_as("somebody else", &leaving).await;
        theirs.disk()?;
        ensure!(theirs.step("RUN echo one > /first")? == "CACHED", "{}", theirs.text());
        ensure!(theirs.text().contains(" owner:7"), "it was taken from a layer\n{}", theirs.text());

        // Two at once: each has a copy, and one of them is kept whole.
        let both = ["five", "six"].map(|name| {
            let step = format!("test -e /cache/left && cat /cache/left && for n in $(seq 50); do echo {name} > /cache/$n; done");
            text(name, &step)
        });
        let (one, other) = tokio::join!(site.dockerfile(&both[0]), site.dockerfile(&both[1]));
        one.disk()?;
        other.disk()?;
        let after = site.dockerfile(&text("seven", "cat /cache/[0-9]* | sort | uniq -c > /found")).await;
        let found = inspect(&after.disk()?.disk, "cat /found")?;
        let whole = matches!(found.trim(), "50 five" | "50 six");
        ensure!(whole, "{found}\n{}\n{}\n{}", one.text(), other.text(), after.text());

        // A disk that no guest can mount is begun anew.
        let kept = site.lab.node().builds_directory().join("caches");
        for cache in fs::read_dir(&kept)? {
            let disk = cache?.path().join("disk.ext4");
            fs::OpenOptions::new().write(true).truncate(true).open(&disk)?.set_len(64 << 20)?;
        }
        let anew = site.dockerfile(&text("four", "test ! -e /cache/left && echo again > /cache/left")).await;
        anew.disk().context("after damage")?;

        ensure!(fs::read_dir(&kept)?.count() == 2, "one for each owner");
        site.tidy().await
    })
}

#[test]
fn caches_are_bounded() -> Result<()> {
    run_for(TIMEOUT, async || {
        let settings = BuilderSettings { caches_bytes_max: 1 << 20, ..BuilderSettings::default() };
        let site = Site::open_with("bounded", settings).await?;
        let large = text("one", "head -c 4000000 /dev/urandom > /cache/large");
        site.dockerfile(&large).await.disk()?;
        let kept = site.lab.node().builds_directory().join("caches");
        wait::until("it is gone", TIMEOUT, || {
            fs::read_dir(&kept).is_ok_and(|mut left| left.next().is_none())
        })
        .await?;
        let again = site.dockerfile(&text("two", "test ! -e /cache/large")).await;
        again.disk()?;
        site.tidy().await
    })
}

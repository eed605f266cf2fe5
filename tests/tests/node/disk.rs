//! A root disk that is larger than its template's: the guest has all of it, and so has everything that comes from it.

use anyhow::{Context, Result, ensure};
use node::{CreateFrom, CreateRequest, NodeError};
use tests::{Guest, in_lab};

const GIB: u64 = 1 << 30;
/// What the guest's root file system offers, in MiB.
const SIZE: &str = "df -m --output=size / | tail -1 | tr -d ' '";

fn request(from: &domain::SnapshotId, gib: u64) -> CreateRequest {
    CreateRequest { disk_bytes: Some(gib * GIB), ..CreateRequest::new(CreateFrom::Snapshot(from.clone())) }
}

async fn size_mib(guest: &Guest) -> Result<u64> {
    guest.shell(SIZE).await?.trim().parse().context("no size")
}

#[test]
fn a_disk_grows_at_create_and_stays_so() -> Result<()> {
    in_lab(async |lab| {
        let plain = lab.create().await?;
        let before = size_mib(&plain).await?;
        plain.remove().await?;

        let large = Guest::new(lab.node().create(request(lab.template(), 8)).await?.0);
        let grown = size_mib(&large).await?;
        ensure!(grown > 7 * 1024 && before < 1024, "{before} MiB became {grown}");
        // Into blocks that were not there before.
        large.shell("head -c 32M /dev/urandom > /far && sha256sum /far > /sum && sync").await?;

        let child = lab.fork(&large, 1).await?.pop().context("no child")?;
        ensure!(size_mib(&child).await? == grown);
        child.shell("sha256sum -c /sum").await?;
        child.remove().await?;

        large.sandbox().hibernate().await?;
        large.sandbox().wake().await?;
        ensure!(size_mib(&large).await? == grown);
        large.shell("sha256sum -c /sum && head -c 32M /dev/urandom > /more && sync").await?;

        let (kept, _) = lab.node().snapshot(large.sandbox()).await?;
        let again = Guest::new(lab.node().create(request(&kept.id, 10)).await?.0);
        ensure!(size_mib(&again).await? > grown);
        again.shell("sha256sum -c /sum").await?;
        let smaller = lab.node().create(request(&kept.id, 2)).await.map(drop);
        ensure!(matches!(smaller, Err(NodeError::DiskTooSmall { .. })), "{smaller:?}");
        again.remove().await?;
        large.remove().await?;
        lab.node().delete_snapshot(&kept.id)?;
        Ok(())
    })
}

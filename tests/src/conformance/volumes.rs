//! Disks besides the root disk.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use machine::{DriveMode, StartError, VOLUMES_MAX, VolumeDrive};

use super::{Fixture, Origin};
use crate::guest::shell;

const MIB: u64 = 1 << 20;
/// Sizes of the disks a guest has, in its order, and whether it may write them.
const DISKS: &str = "for disk in /sys/block/vd*; do echo ${disk##*/} $(($(cat $disk/size)/2048)) $(cat $disk/ro); done | tail -n +2";

/// A file that begins with a word.
fn volume(fixture: &Fixture, word: &str, mib: u64) -> Result<PathBuf> {
    let path = fixture.directory.join(format!("volume-{word}"));
    std::fs::create_dir_all(&fixture.directory)?;
    std::fs::write(&path, format!("{word}\n"))?;
    File::options().write(true).open(&path)?.set_len(mib * MIB)?;
    Ok(path)
}

fn writable(path: &PathBuf) -> Result<VolumeDrive> {
    let file = File::options().read(true).write(true).open(path)?;
    Ok(VolumeDrive { file, mode: DriveMode::ReadWrite })
}

fn readable(path: &PathBuf) -> Result<VolumeDrive> {
    Ok(VolumeDrive { file: File::open(path)?, mode: DriveMode::ReadOnly })
}

/// A saved machine without volumes is restored with some; they are there in order, with their sizes and modes, and stay through
/// another save. One that grows is seen to.
pub async fn a_restored_machine_has_its_volumes(fixture: &Fixture) -> Result<()> {
    let state = fixture.booted_state().await?;
    let bare = fixture.restore(state).await?;
    ensure!(shell(&bare.resume().await?, DISKS).await?.is_empty(), "disks that nobody gave");

    let (first, second) = (volume(fixture, "first", 3)?, volume(fixture, "second", 5)?);
    let machine = fixture.restore_with(state, vec![writable(&first)?, readable(&second)?]).await?;
    let link = machine.resume().await?;
    ensure!(shell(&link, DISKS).await?.is_empty());
    link.find_volumes(&[false, true]).await?;
    link.find_volumes(&[false, true]).await.context("find them again")?;
    ensure!(shell(&link, DISKS).await? == "vdb 3 0\nvdc 5 1", "{}", shell(&link, DISKS).await?);
    ensure!(shell(&link, "head -qn1 /dev/vdb /dev/vdc").await? == "first\nsecond");
    shell(&link, "echo other | dd of=/dev/vdb conv=notrunc,fsync status=none").await?;
    let forced = "blockdev --setrw /dev/vdc; echo other | dd of=/dev/vdc conv=notrunc,fsync status=none";
    ensure!(shell(&link, forced).await.is_err(), "a read-only volume was written");
    ensure!(
        std::fs::read(&first)?.starts_with(b"other\n") && std::fs::read(&second)?.starts_with(b"second\n")
    );

    let (saved, _) = machine.save(&link, Origin::Restored).await?;
    machine.vm.kill().await;
    File::options().write(true).open(&first)?.set_len(7 * MIB)?;
    let again = fixture.restore_with(&saved, vec![writable(&first)?, readable(&second)?]).await?;
    let link = again.resume().await?;
    ensure!(shell(&link, DISKS).await? == "vdb 3 0\nvdc 5 1", "{}", shell(&link, DISKS).await?);
    again.vm.grow_volume(0, 7 * MIB).await.context("tell that it grew while saved")?;
    shell(&link, "until [ $(cat /sys/block/vdb/size) = 14336 ]; do :; done").await?;
    File::options().write(true).open(&first)?.set_len(9 * MIB)?;
    again.vm.grow_volume(0, 9 * MIB).await.context("grow while it runs")?;
    again.vm.grow_volume(0, 9 * MIB).await.context("grow again")?;
    shell(&link, "until [ $(cat /sys/block/vdb/size) = 18432 ]; do :; done").await?;
    ensure!(shell(&link, "head -qn1 /dev/vdb /dev/vdc").await? == "other\nsecond");
    Ok(())
}

/// A booted machine finds as many volumes as there can be, in order, by itself; more are refused.
pub async fn a_booted_machine_has_its_volumes(fixture: &Fixture) -> Result<()> {
    let paths: Vec<_> = (0..=VOLUMES_MAX)
        .map(|number| volume(fixture, &format!("boot{number}"), number as u64 + 1))
        .collect::<Result<_>>()?;
    let drives = |count: usize| paths[..count].iter().map(writable).collect::<Result<Vec<_>>>();
    let refused = fixture.boot_with(drives(VOLUMES_MAX + 1)?).await.err().context("too many were taken")?;
    let refused = refused.downcast::<StartError>()?;
    ensure!(matches!(refused, StartError::TooManyVolumes { asked } if asked == VOLUMES_MAX + 1), "{refused}");
    let machine = fixture.boot_with(drives(VOLUMES_MAX)?).await?;
    let link = machine.first_link().await?;
    link.find_volumes(&[false; VOLUMES_MAX]).await?;
    let words = shell(&link, "head -qn1 /dev/vd[b-z]").await?;
    ensure!(words == "boot0\nboot1\nboot2\nboot3", "{words}");
    ensure!(link.find_volumes(&[false; VOLUMES_MAX + 1]).await.is_err());
    Ok(())
}

//! Saves one instant of a machine: memory, devices and disk that belong together.
//!
//! What can be done before the guest is stopped is done before: the guest's link falls silent at a frame boundary, the disk is
//! flushed, the base memory is cloned. While it is stopped only changed pages, devices and a clone of the disk are taken. What
//! can wait until it runs again waits: sums, syncing, committing.

use std::fs::File;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use guest_link::client::{Flush, Link};
use machine::{MemoryTarget, SaveTarget, Saved, Vm, WriteOut};
use memory::Checksums;
use memory::sums::{DISK_CHUNK_BYTES, MEMORY_CHUNK_BYTES};
use serde::Serialize;
use storage::Staged;
use storage::clone::clone_open_file;
use tokio::task::JoinHandle;

use crate::error::NodeError;
use crate::read_ahead::InUse;
use crate::restore::milliseconds;
use crate::snapshots::{DEVICES, DISK, DISK_SUMS, MEMORY, MEMORY_SUMS, Pin};

/// Saved memory is read by machine processes, each under its own user id. The directories above it admit only root.
pub(crate) const MEMORY_MODE: u32 = 0o444;
/// How long a guest may take to fall silent. Flushing its file systems may take a while on a slow disk.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the time of a save went.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct SaveTimings {
    /// Getting ready while the guest ran.
    pub before_ms: f64,
    /// How long the guest stood still.
    pub paused_ms: f64,
    /// The part of it spent on memory and devices.
    pub copy_ms: f64,
    /// What was left to do afterwards: sums, and writing down that it is there.
    pub commit_ms: f64,
    /// Bytes of memory that had changed.
    pub changed_bytes: u64,
}

/// The file behind a machine's memory.
#[derive(Debug)]
pub(crate) enum MemorySource {
    /// Mapped privately over this file; the sums of it, if known.
    Private { base: PathBuf },
    /// The memory is this file.
    Shared { file: PathBuf },
}

/// What to do with the machine afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// It goes on running.
    Resume,
    /// It stays stopped: it was paused before, or is about to end.
    StayPaused,
}

/// A machine to save.
pub(crate) struct Subject<'a> {
    pub(crate) vm: &'a dyn Vm,
    /// The guest's link; `None` when the machine is paused and so already silent.
    pub(crate) link: Option<&'a Link>,
    pub(crate) memory: &'a MemorySource,
    pub(crate) disk: &'a Path,
}

/// Where the parts of an instant go.
pub(crate) struct Targets {
    pub(crate) memory: PathBuf,
    pub(crate) devices: PathBuf,
    /// `None` when the disk stays where it is, because nothing will write it any more.
    pub(crate) disk: Option<PathBuf>,
    pub(crate) first_use: FirstUse,
}

/// When a machine goes on from the instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstUse {
    /// At once: what its guest will want first is read ahead while the rest is still being saved.
    Now,
    /// Some day: it is noted beside the memory what its guest will want first.
    Later,
}

/// Takes the instant. After `Err` the machine goes on as before and the targets are the caller's to remove.
pub(crate) async fn take(
    subject: &Subject<'_>,
    targets: &Targets,
    flush: Flush,
    afterwards: Afterwards,
) -> Result<(Saved, SaveTimings), NodeError> {
    let started = Instant::now();
    let mut timings = SaveTimings::default();
    if let Some(link) = subject.link {
        silence(link, flush).await?;
    }
    let taken = take_silent(subject, targets, &mut timings, started, afterwards).await;
    if let Some(link) = subject.link
        && (afterwards == Afterwards::Resume || taken.is_err())
    {
        link.resume();
    }
    taken.map(|saved| (saved, timings))
}

/// Silences a link; when the guest does not answer, the link goes on as before.
pub(crate) async fn silence(link: &Link, flush: Flush) -> Result<(), NodeError> {
    let silenced = tokio::time::timeout(QUIESCE_TIMEOUT, link.quiesce(flush)).await;
    let outcome = match silenced {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => Err(NodeError::link("fall silent")(error)),
        Err(_) => Err(NodeError::GuestSilent { what: "fall silent", seconds: QUIESCE_TIMEOUT.as_secs() }),
    };
    link.resume();
    outcome
}

async fn take_silent(
    subject: &Subject<'_>,
    targets: &Targets,
    timings: &mut SaveTimings,
    started: Instant,
    afterwards: Afterwards,
) -> Result<Saved, NodeError> {
    let host = NodeError::host;
    let disk = File::open(subject.disk).map_err(host("open the disk"))?;
    let devices = create_devices(&targets.devices)?;
    let mut looking = None;
    let memory = tokio::task::block_in_place(|| {
        // Cloning a file first writes out what of it is only in memory; better now than while the guest stands still.
        disk.sync_data().map_err(host("flush the disk"))?;
        match subject.memory {
            MemorySource::Private { base } => {
                let base = File::open(base).map_err(host("open the base memory"))?;
                let (copy, _) = clone_open_file(&base, &targets.memory, MEMORY_MODE)?;
                let begun = look_ahead(subject.vm, &base, &copy, targets.first_use);
                looking = Some(begun.map_err(host("open the base memory"))?);
                // Of a machine that is put to sleep nothing goes on before all of it is on the disk.
                let write_out = match &targets.disk {
                    None => WriteOut::AtOnce,
                    Some(_) => WriteOut::Later,
                };
                Ok::<_, NodeError>(Some(MemoryTarget { base, copy, write_out }))
            }
            MemorySource::Shared { .. } => Ok(None),
        }
    })?;
    timings.before_ms = milliseconds(started);

    let started = Instant::now();
    subject.vm.pause().await?;
    let saved = async {
        let copying = Instant::now();
        let saved = subject.vm.save(SaveTarget { memory, devices }).await?;
        timings.copy_ms = milliseconds(copying);
        tokio::task::block_in_place(|| {
            if let MemorySource::Shared { file } = subject.memory {
                let file = File::open(file).map_err(host("open the memory"))?;
                clone_open_file(&file, &targets.memory, MEMORY_MODE)?;
            }
            if let Some(target) = &targets.disk {
                clone_open_file(&disk, target, 0o600)?;
            }
            Ok::<_, NodeError>(saved)
        })
    }
    .await;
    if saved.is_err() || afterwards == Afterwards::Resume {
        // A failed save must not leave the guest standing.
        subject.vm.resume().await?;
    }
    timings.paused_ms = milliseconds(started);
    let saved = saved?;
    timings.changed_bytes = saved.changed.iter().map(|range| range.end - range.start).sum();
    if let (Some(looking), FirstUse::Later) = (looking, targets.first_use)
        && let Ok(in_use) = looking.await
    {
        in_use.note(&targets.memory);
    }
    Ok(saved)
}

/// Finds what the guest has in use of the base, while it is being saved. Where that is needed at once, it is read then too.
fn look_ahead(vm: &dyn Vm, base: &File, copy: &File, first_use: FirstUse) -> io::Result<JoinHandle<InUse>> {
    let (pid, base, copy) = (vm.record().process.pid, base.try_clone()?, copy.try_clone()?);
    Ok(tokio::task::spawn_blocking(move || {
        let in_use = InUse::find(pid, &base);
        if first_use == FirstUse::Now {
            in_use.read(&copy);
        }
        in_use
    }))
}

/// A file for the devices' state, open for writing only, as engines want it.
pub(crate) fn create_devices(path: &Path) -> Result<File, NodeError> {
    let opened = File::options().write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(NodeError::host("save the devices"))
}

/// Checksums of saved memory. Where the base's are known at most what changed is read: its sums may have come with it.
pub(crate) fn memory_sums(
    memory: &Path,
    base: Option<Checksums>,
    saved: &Saved,
) -> Result<Checksums, NodeError> {
    let open = || File::open(memory).map_err(NodeError::host("open the saved memory"));
    let sums = match (base, &saved.sums) {
        (Some(base), Some(pages)) => match base.with_pages(pages) {
            Some(sums) => return Ok(sums),
            None => Checksums::compute(&open()?, MEMORY_CHUNK_BYTES),
        },
        (Some(base), None) => base.updated(&open()?, &saved.changed),
        (None, _) => Checksums::compute(&open()?, MEMORY_CHUNK_BYTES),
    };
    sums.map_err(|error| NodeError::host("sum the saved memory")(std::io::Error::other(error)))
}

/// Checksums of a saved disk: of what no longer shares its blocks with the disk it was cloned from, where that is still there.
pub(crate) fn disk_sums(disk: &Path, origin: Option<&Pin>) -> Result<Checksums, NodeError> {
    let host = NodeError::host("sum the saved disk");
    let file = File::open(disk).map_err(host)?;
    let known = origin.and_then(|pin| Some((pin.sums(DISK_SUMS)?, File::open(pin.path(DISK).ok()?).ok()?)));
    let sums = match known {
        Some((sums, base)) => {
            let changed = storage::changed_ranges(&base, &file).map_err(host)?;
            sums.updated(&file, &changed)
        }
        None => Checksums::compute(&file, DISK_CHUNK_BYTES),
    };
    sums.map_err(|error| host(std::io::Error::other(error)))
}

/// The targets of a staged snapshot.
pub(crate) fn staged_targets(staged: &Staged, first_use: FirstUse) -> Result<Targets, NodeError> {
    Ok(Targets {
        memory: staged.path(MEMORY)?,
        devices: staged.path(DEVICES)?,
        disk: Some(staged.path(DISK)?),
        first_use,
    })
}

/// Adds the sums to a staged snapshot and fixes the modes of its files. Blocks.
pub(crate) fn write_sums(staged: &Staged, memory: &Checksums, disk: &Checksums) -> Result<(), NodeError> {
    let host = NodeError::host("write the sums of a snapshot");
    std::fs::write(staged.path(MEMORY_SUMS)?, memory.encode()).map_err(host)?;
    std::fs::write(staged.path(DISK_SUMS)?, disk.encode()).map_err(host)?;
    std::fs::set_permissions(staged.path(MEMORY)?, std::fs::Permissions::from_mode(MEMORY_MODE)).map_err(host)
}

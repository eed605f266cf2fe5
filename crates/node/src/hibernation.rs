//! The image of a hibernated sandbox: its memory and devices, beside the disk they belong to.
//!
//! `hibernation.json` is the image: while it is there and trusted, memory and disk are of one instant. It is written last when
//! hibernating and removed before the guest runs again, so that old memory never meets a newer disk. Removing a file is not
//! durable by itself, so waking first leaves a durable note of the host's boot: after a crash of the host, an image with a note
//! of another boot is not trusted.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use domain::EngineFingerprint;
use memory::{Checksums, What};
use serde::{Deserialize, Serialize};
use storage::durable::sync_directory;
use storage::snapshot::Digest;
use storage::{Durability, write_file};

use crate::error::NodeError;
use crate::read_ahead::note_name;
use crate::stamp::{Stamp, boot_id};

const IMAGE: &str = "hibernation.json";
const WAKING: &str = "waking";

/// What a hibernated sandbox is brought back from. Names are of files in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) memory: String,
    pub(crate) devices: String,
    /// What it can be resumed with.
    pub(crate) fingerprint: EngineFingerprint,
    devices_digest: String,
    stamps: HashMap<String, Stamp>,
}

impl Image {
    /// Names of the files of one generation; different from those of any image that may still be mapped.
    pub(crate) fn names(generation: u64) -> (String, String) {
        (format!("memory.{generation}"), format!("devices.{generation}"))
    }

    /// Commits files that have been written: from here on the sandbox can be brought back from them. `sum` makes the sums of the
    /// memory while it is on its way to the disk. Blocks.
    pub(crate) fn commit(
        directory: &Path,
        (memory, devices): (String, String),
        fingerprint: EngineFingerprint,
        sum: impl FnOnce() -> Result<Checksums, NodeError>,
    ) -> Result<Self, NodeError> {
        let host = NodeError::host("save the hibernation image");
        let sums_name = sums_name(&memory);
        let sync =
            |name: &str| File::open(directory.join(name)).and_then(|file| file.sync_all()).map_err(host);
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| sync(&memory));
            fs::write(directory.join(&sums_name), sum()?.encode()).map_err(host)?;
            for name in [&devices, &sums_name, crate::snapshots::DISK] {
                sync(name)?;
            }
            syncing.join().unwrap_or_else(|_| Err(host(io::Error::other("the syncing thread ended"))))
        })?;
        let mut stamps = HashMap::new();
        for name in [&memory, &devices, &sums_name] {
            stamps.insert(name.clone(), Stamp::of(&directory.join(name)).map_err(host)?);
        }
        let devices_digest = Digest::of(&fs::read(directory.join(&devices)).map_err(host)?).to_string();
        let image = Self { memory, devices, fingerprint, devices_digest, stamps };
        let bytes = serde_json::to_vec(&image).map_err(io::Error::from).map_err(host)?;
        // Syncs the directory too, and with it the names of the files above.
        write_file(&directory.join(IMAGE), &bytes, Durability::Synced).map_err(host)?;
        Ok(image)
    }

    /// The image in a sandbox's directory, unless a guest may have run since it was written.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        match fs::read_to_string(directory.join(WAKING)) {
            Ok(noted) if boot_id().is_ok_and(|boot| boot == noted) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return None,
        }
        serde_json::from_slice(&fs::read(directory.join(IMAGE)).ok()?).ok()
    }

    /// Makes sure that the files are the ones written. Costs nothing when nobody touched them since. Blocks.
    pub(crate) fn verify(&self, directory: &Path) -> Result<(), NodeError> {
        if self.stamps.iter().all(|(name, stamp)| stamp.still_holds(&directory.join(name))) {
            return Ok(());
        }
        let damaged = |what: String| NodeError::Damaged { what };
        let sums = self.sums(directory)?;
        let memory =
            File::open(directory.join(&self.memory)).map_err(|error| damaged(format!("memory: {error}")))?;
        sums.verify(&memory, What::All).map_err(|error| damaged(format!("memory: {error}")))?;
        let devices =
            fs::read(directory.join(&self.devices)).map_err(|error| damaged(format!("devices: {error}")))?;
        match Digest::of(&devices).to_string() == self.devices_digest {
            true => Ok(()),
            false => Err(damaged("devices: they are not the ones written".to_owned())),
        }
    }

    /// The sums of its memory.
    pub(crate) fn sums(&self, directory: &Path) -> Result<Checksums, NodeError> {
        read_sums(directory, &self.memory)
    }
}

/// The sums of a memory file of the sandbox's own.
pub(crate) fn read_sums(directory: &Path, memory: &str) -> Result<Checksums, NodeError> {
    let damaged = |what: String| NodeError::Damaged { what };
    let bytes =
        fs::read(directory.join(sums_name(memory))).map_err(|error| damaged(format!("sums: {error}")))?;
    Checksums::decode(&bytes).map_err(|error| damaged(format!("sums: {error}")))
}

fn sums_name(memory: &str) -> String {
    format!("{memory}.sums")
}

/// Names of all files of an image that are there, the image itself last.
pub(crate) fn files(image: &Image, directory: &Path) -> Vec<String> {
    let needed = [image.memory.clone(), image.devices.clone(), sums_name(&image.memory)];
    let note = Some(note_name(&image.memory)).filter(|name| directory.join(name).exists());
    needed.into_iter().chain(note).chain([IMAGE.to_owned()]).collect()
}

/// Notes durably that the image is about to be used up.
pub(crate) fn note_waking(directory: &Path) -> io::Result<()> {
    write_file(&directory.join(WAKING), boot_id()?.as_bytes(), Durability::Synced)
}

/// Takes back the note: the guest did not run.
pub(crate) fn withdraw_waking(directory: &Path) -> io::Result<()> {
    remove(&directory.join(WAKING))?;
    sync_directory(directory)
}

/// Ends the image's validity. From here on the guest may run.
pub(crate) fn retire(directory: &Path) -> io::Result<()> {
    remove(&directory.join(IMAGE))
}

/// Removes files of images other than the memory named, which a machine may map.
pub(crate) fn remove_leftovers(directory: &Path, keep: Option<&str>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let kept = keep.is_some_and(|keep| name == keep || name == sums_name(keep));
        if (name.starts_with("memory.") && !kept)
            || name.starts_with("devices.")
            || name == WAKING
            || name == IMAGE
        {
            remove(&directory.join(name))?;
        }
    }
    Ok(())
}

/// Removes what neither the image nor `memory` (which a machine may map) names: parts of sleeps that were interrupted or are over.
/// Only for whoever owns the sandbox, while nothing is being written to it.
pub(crate) fn remove_unnamed(directory: &Path, memory: Option<&str>) -> io::Result<()> {
    let image = Image::read(directory);
    let mut named: Vec<String> = memory.map(str::to_owned).into_iter().collect();
    if let Some(image) = image {
        named.extend([image.memory, image.devices]);
    }
    let beside: Vec<_> = named.iter().flat_map(|name| [sums_name(name), note_name(name)]).collect();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let part = name.starts_with("memory.") || name.starts_with("devices.");
        // A small file that was being written aside when its writer was killed.
        let aside = name.starts_with('.') && name.ends_with(".tmp");
        if aside || (part && !named.contains(&name) && !beside.contains(&name)) {
            remove(&directory.join(name))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

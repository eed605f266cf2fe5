//! Writes a folder into an ext4 image, without mounting anything. The only caller of `mke2fs` here.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::spec::{DiskSize, SpecError};
use crate::digest::Digest;
use crate::error::ImageError;
use crate::tool::{Run, Tool, ToolError};

const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Every guest pays for the pages of the journal it writes; a larger one would make snapshots larger.
const JOURNAL_MIB: u32 = 16;
/// All times in the image that mke2fs chooses itself. Any fixed time does.
const EPOCH: &str = "1700000000";

/// A disk image to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ext4<'a> {
    /// Everything below it becomes the content.
    pub(super) root: &'a Path,
    /// The image, which is not there yet.
    pub(super) file: &'a Path,
    pub(super) size: DiskSize,
    /// Identifiers in the image are derived from it: the same tree and key give the same ones.
    pub(super) key: &'a Digest,
    /// Files that there must be room for, beyond the usual number for the size.
    pub(super) files_min: u64,
    pub(super) journal: Journal,
    /// Held by the program while it works.
    pub(super) lock: Option<&'a File>,
}

/// Whether an image has a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// For disks that are written.
    Kept,
    /// For disks that are only read.
    None,
}

/// Bytes of the disk for each file that there is room for, unless more are wanted.
const BYTES_PER_FILE: u64 = 16 << 10;

impl Ext4<'_> {
    /// Writes the image.
    pub(super) async fn write(&self) -> Result<(), ImageError> {
        let identifier = uuid(self.key.first_bytes());
        let extended = format!(
            "hash_seed={identifier},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,packed_meta_blocks=1"
        );
        let mut run = Run::new(Tool::Mke2fs, LIMIT)
            .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-L", "root", "-U", &identifier])
            .args(["-O", "^metadata_csum_seed,^orphan_file", "-E", &extended]);
        run = match self.journal {
            Journal::Kept => run.arg("-J").arg(format!("size={JOURNAL_MIB}")),
            Journal::None => run.args(["-O", "^has_journal"]),
        };
        if self.files_min > self.size.bytes() / BYTES_PER_FILE {
            run = run.arg("-N").arg(self.files_min.to_string());
        }
        run = run
            .arg("-d")
            .arg(self.root)
            .arg(self.file)
            .arg(format!("{}M", self.size.mib()))
            .env("E2FSPROGS_FAKE_TIME", EPOCH)
            .env("SOURCE_DATE_EPOCH", EPOCH);
        if let Some(lock) = self.lock {
            run = run.holding(lock);
        }
        match run.output().await {
            Ok(_) => Ok(()),
            // What mke2fs says when the image, not the host's disk, is full.
            Err(ToolError::Failed { tail, .. })
                if tail.contains("Could not allocate") || tail.contains("will not fit") =>
            {
                Err(SpecError::DiskTooSmall { mib: self.size.mib() }.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes an image larger, file system and all. One that nobody has ever mounted: others may need a check first.
pub(super) async fn grow(file: &Path, size: DiskSize) -> Result<(), ImageError> {
    let run = Run::new(Tool::Resize2fs, LIMIT).arg(file).arg(format!("{}M", size.mib()));
    run.env("E2FSPROGS_FAKE_TIME", EPOCH).output().await?;
    Ok(())
}

/// Bytes of a digest in the form of a random UUID.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_the_form_of_a_uuid() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}

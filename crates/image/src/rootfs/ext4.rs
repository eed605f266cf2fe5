//! Writes a folder into an ext4 image, without mounting anything. The only caller of `mke2fs` here.

use std::path::Path;
use std::time::Duration;

use super::spec::{DiskSize, SpecError};
use crate::digest::Digest;
use crate::error::ImageError;
use crate::store::Staging;
use crate::tool::{Run, Tool, ToolError};

const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Every guest pays for the pages of the journal it writes; a larger one would make snapshots larger.
const JOURNAL_MIB: u32 = 16;
/// All times in the image that mke2fs chooses itself. Any fixed time does.
const EPOCH: &str = "1700000000";

/// Makes `file` in the staging folder from everything below `root`. The same tree and key give the same identifiers.
pub(super) async fn make(
    staging: &Staging,
    root: &Path,
    file: &str,
    size: DiskSize,
    key: &Digest,
) -> Result<(), ImageError> {
    let identifier = uuid(key.first_bytes());
    let extended = format!(
        "hash_seed={identifier},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,packed_meta_blocks=1"
    );
    let mut run = Run::new(Tool::Mke2fs, LIMIT)
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-L", "root", "-U", &identifier])
        .args(["-O", "^metadata_csum_seed,^orphan_file", "-E", &extended, "-J"])
        .arg(format!("size={JOURNAL_MIB}"))
        .arg("-d")
        .arg(root)
        .arg(staging.path().join(file))
        .arg(format!("{}M", size.mib()))
        .env("E2FSPROGS_FAKE_TIME", EPOCH)
        .env("SOURCE_DATE_EPOCH", EPOCH);
    if let Some(lock) = staging.lock() {
        run = run.holding(lock);
    }
    match run.output().await {
        Ok(_) => Ok(()),
        // What mke2fs says when the image, not the host's disk, is full.
        Err(ToolError::Failed { tail, .. })
            if tail.contains("Could not allocate") || tail.contains("will not fit") =>
        {
            Err(SpecError::DiskTooSmall { mib: size.mib() }.into())
        }
        Err(error) => Err(error.into()),
    }
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

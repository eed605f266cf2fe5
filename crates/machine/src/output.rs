//! What a machine process says itself: kept in memory, bounded, read when something went wrong.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How much of a process's own words is kept.
const OUTPUT_BYTES: u64 = 64 * 1024;

/// A file for the process's own words that can hold only so much: a process gone wild fills neither disk nor memory.
pub(crate) fn bounded() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let file = memfd_create("machine-output", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, OUTPUT_BYTES)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(File::from(file))
}

/// The end of what the process said.
pub(crate) fn tail(output: &File) -> String {
    let mut bytes = vec![0u8; OUTPUT_BYTES as usize];
    let count = output.read_at(&mut bytes, 0).unwrap_or(0);
    let said = String::from_utf8_lossy(&bytes[..count]);
    let said = said.trim_end_matches('\0').trim();
    let start = said.char_indices().rev().nth(1000).map_or(0, |(index, _)| index);
    said[start..].to_owned()
}

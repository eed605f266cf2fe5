//! Reads ahead what a guest will want first of its memory.
//!
//! Clones of a file share blocks on the disk but nothing in memory: what of a saved memory is as it was in its base has to be
//! read from the disk again, a fault at a time, although the base may well be in memory. So it is noted beside a saved memory
//! what its guest had in use and unchanged, and that is read in one go while the next machine process starts.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memory::GuestMemory;
use rustix::fs::Advice;
use storage::{Durability, write_file};

/// Most that is read ahead. More would keep the disk from what the guest asks for itself.
const BYTES_MAX: u64 = 64 << 20;
/// What lies less apart is read together.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// The longest note that is read.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// Parts of a memory: ascending, apart from each other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse(Vec<Range<u64>>);

/// Begins to read what is noted beside a saved memory, if anything is, in the background.
pub(crate) fn begin(memory: PathBuf) {
    tokio::task::spawn_blocking(move || {
        if let (Some(in_use), Ok(file)) = (InUse::noted(&memory), File::open(&memory)) {
            in_use.read(&file);
        }
    });
}

/// Takes over what is noted beside one saved memory to a copy of it.
pub(crate) fn carry(memory: &Path, copy: &Path) {
    if let Some(in_use) = InUse::noted(memory) {
        in_use.note(copy);
    }
}

/// The name of the note beside a saved memory.
pub(crate) fn note_name(memory: &str) -> String {
    format!("{memory}.ahead")
}

impl InUse {
    /// What the guest of a machine process has in use as it is in `base`. Blocks.
    pub(crate) fn find(pid: u32, base: &File) -> Self {
        // Memory that came on demand has no file, and a process that has just ended no memory: then nothing is read ahead.
        let found = GuestMemory::find(pid, base).ok().and_then(|memory| memory.in_place().ok());
        Self::of(found.unwrap_or_default())
    }

    fn of(found: Vec<Range<u64>>) -> Self {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut bytes = 0;
        for range in found {
            bytes += range.end - range.start;
            if bytes > BYTES_MAX {
                break;
            }
            match ranges.last_mut() {
                Some(last) if range.start.saturating_sub(last.end) <= GAP_BYTES_MAX => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        Self(ranges)
    }

    /// Only asks: the kernel reads on its own, and what it has already is not read again.
    pub(crate) fn read(&self, file: &File) {
        for range in &self.0 {
            let length = NonZeroU64::new(range.end - range.start);
            if rustix::fs::fadvise(file, range.start, length, Advice::WillNeed).is_err() {
                return;
            }
        }
    }

    /// Notes it beside a saved memory. Without the note the memory is as good, and slower.
    pub(crate) fn note(&self, memory: &Path) {
        let written = serde_json::to_vec(&self.0)
            .map_err(io::Error::from)
            .and_then(|bytes| write_file(&note_path(memory), &bytes, Durability::Unsynced));
        if let Err(error) = written {
            tracing::warn!(%error, "could not note what to read ahead");
        }
    }

    fn noted(memory: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        File::open(note_path(memory)).ok()?.take(NOTE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let ranges: Vec<Range<u64>> = serde_json::from_slice(&bytes).ok()?;
        let ordered = ranges.iter().all(|range| range.start < range.end)
            && ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        ordered.then(|| Self::of(ranges))
    }
}

fn note_path(memory: &Path) -> PathBuf {
    let name = memory.file_name().unwrap_or_default().to_string_lossy();
    memory.with_file_name(note_name(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn near_parts_are_read_together_and_no_more_than_a_bound() {
        let far = 2 * GAP_BYTES_MAX;
        let found = vec![0..PAGE, 2 * PAGE..3 * PAGE, far..far + PAGE];
        assert_eq!(InUse::of(found), InUse(vec![0..3 * PAGE, far..far + PAGE]));
        let bounded = InUse::of(vec![0..PAGE, far..far + PAGE, 2 * far..2 * far + BYTES_MAX]);
        assert_eq!(bounded, InUse(vec![0..PAGE, far..far + PAGE]));
        assert_eq!(InUse::of(Vec::new()), InUse::default());
    }

    #[test]
    fn what_is_noted_is_found_and_nonsense_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let memory = directory.path().join("memory.3");
        assert_eq!(InUse::noted(&memory), None);
        let in_use = InUse(vec![0..PAGE, 1 << 30..(1 << 30) + PAGE]);
        in_use.note(&memory);
        assert_eq!(InUse::noted(&memory), Some(in_use));
        let backwards = r#"[{"start":8192,"end":12288},{"start":0,"end":4096}]"#;
        let empty = r#"[{"start":4096,"end":4096}]"#;
        for nonsense in ["", "{", backwards, empty] {
            std::fs::write(directory.path().join("memory.3.ahead"), nonsense).unwrap();
            assert_eq!(InUse::noted(&memory), None);
        }
    }

    #[test]
    fn what_is_read_ahead_is_in_memory_soon() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 64 * PAGE as usize], 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        InUse(vec![8 * PAGE..16 * PAGE, 32 * PAGE..33 * PAGE]).read(&file);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let is_in_memory = || {
            let mut page = [0; PAGE as usize];
            let mut into = [io::IoSliceMut::new(&mut page)];
            rustix::io::preadv2(&file, &mut into, 12 * PAGE, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
        };
        while !is_in_memory() {
            assert!(std::time::Instant::now() < deadline, "it was never read");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_shorter_than_noted_is_left_as_it_is() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        InUse(vec![0..PAGE, 100 * PAGE..200 * PAGE]).read(&file);
        assert_eq!(file.metadata().unwrap().len(), PAGE);
    }
}

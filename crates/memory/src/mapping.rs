//! Where a VMM process has its guest's RAM.
//!
//! A [`GuestMemory`] holds the process's own `/proc` files, so a recycled process id can never be mistaken for it.
//! RAM has one part or several: Firecracker maps what lies above a guest's 32-bit devices on its own. Memory that a guest
//! gave back by its balloon is anonymous in the middle of what is otherwise of the file ([`locate`]).

mod locate;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{Mode, OFlags};

use crate::PAGE_BYTES;
use crate::pages::Regions;
use locate::{Located, locate};

/// Longest `/proc/PID/maps` that is read. A VMM has some hundred lines of about 100 bytes, and one more for every piece that
/// a guest gave back; the kernel allows 65,530 mappings unless told otherwise.
const MAPS_BYTES_MAX: u64 = 16 << 20;

/// Most parts that RAM is taken to have.
const PARTS_MAX: usize = 8;

/// Whether writes of the guest reach the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// `MAP_PRIVATE`: what the guest wrote is in the process only and has to be captured.
    Private,
    /// `MAP_SHARED`: the file itself is the guest's RAM.
    Shared,
}

/// A piece of RAM that lies at adjacent addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the RAM, and so in the file.
    pub offset: u64,
    /// Where it begins in the process.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
}

impl Part {
    /// Where it ends in the RAM.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The address of what lies at `offset` in the RAM, which must be of this part.
    pub(crate) fn address_of(&self, offset: u64) -> u64 {
        self.address + (offset - self.offset)
    }
}

/// The RAM of a guest inside a living VMM process.
///
/// The parts stay where they are while the process lives. What the guest gave back is known as of the moment in which it
/// was found, so a guest with a balloon is looked for anew, paused, for every capture.
#[derive(Debug)]
pub struct GuestMemory {
    pid: u32,
    parts: Vec<Part>,
    given_back: Vec<Range<u64>>,
    sharing: Sharing,
    pagemap: File,
}

/// Why the RAM of a process could not be found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The process has ended.
    #[error("process {pid} has ended")]
    Gone {
        /// The process asked for.
        pid: u32,
    },
    /// The process lives but does not map all of the file once, or it cannot be told where.
    #[error("process {pid} does not map the memory file from its beginning to its end")]
    NotMapped {
        /// The process asked for.
        pid: u32,
    },
    /// The file is empty or not made of whole pages.
    #[error("a memory file of {length} bytes is not a whole number of pages")]
    Length {
        /// Its length.
        length: u64,
    },
    /// The kernel refused to tell.
    #[error("could not read {what} of process {pid}")]
    Read {
        /// The process asked for.
        pid: u32,
        /// Which of its files.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl GuestMemory {
    /// Finds where `pid` maps `file`, all of it. The mapping may be split over several lines of `/proc/PID/maps`, as
    /// `mprotect` and `madvise` leave it, lie in several parts, and have anonymous memory in place of pieces of the file.
    pub fn find(pid: u32, file: &File) -> Result<GuestMemory, FindError> {
        let failed = |what| move |source: io::Error| explain(pid, what, source);
        let metadata = file.metadata().map_err(failed("the memory file"))?;
        let length = metadata.len();
        if length == 0 || length % PAGE_BYTES != 0 {
            return Err(FindError::Length { length });
        }
        let process = open_directory(pid).map_err(failed("/proc"))?;
        let pagemap = open(pid, &process, "pagemap")?;
        let mut maps = String::new();
        let read = open(pid, &process, "maps")?
            .take(MAPS_BYTES_MAX)
            .read_to_string(&mut maps)
            .map_err(failed("maps"))?;
        if read == 0 {
            return Err(FindError::Gone { pid });
        }
        let is_the_file = |line: &locate::Line| {
            let device = rustix::fs::makedev(line.device.0, line.device.1);
            line.inode == metadata.ino()
                && (device == metadata.dev() || link_leads_to(&process, &line.addresses, &metadata))
        };
        match locate(&maps, length, is_the_file) {
            Some(Located { parts, given_back, sharing }) if parts.len() <= PARTS_MAX => {
                Ok(GuestMemory { pid, parts, given_back, sharing, pagemap })
            }
            _ => Err(FindError::NotMapped { pid }),
        }
    }

    /// The memory of a process that is served on demand: anonymous, without a file. `removed` is what its guest gave back.
    /// What the process holds is what was put in place or written.
    pub(crate) fn served(
        pid: u32,
        regions: &Regions,
        removed: Vec<Range<u64>>,
    ) -> Result<GuestMemory, FindError> {
        let process = open_directory(pid).map_err(|source| explain(pid, "/proc", source))?;
        let pagemap = open(pid, &process, "pagemap")?;
        let parts = regions.parts().to_vec();
        let memory = GuestMemory { pid, parts, given_back: removed, sharing: Sharing::Private, pagemap };
        if memory.is_alive() { Ok(memory) } else { Err(FindError::Gone { pid }) }
    }

    /// The process that runs the guest.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where the RAM lies in that process: ascending, each part beginning where the one before it ends in the RAM.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of RAM, a multiple of [`PAGE_BYTES`].
    pub fn length(&self) -> u64 {
        self.parts.last().map_or(0, Part::end)
    }

    /// Whether the guest writes into the file or into private copies.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Ranges of the RAM that are not of the file any more: the guest gave them back, and they are zeros where it has
    /// not written since. Ascending and apart from each other.
    pub fn given_back(&self) -> &[Range<u64>] {
        &self.given_back
    }

    /// Whether the process found still has its memory. A replaced process of the same id does not count.
    pub fn is_alive(&self) -> bool {
        // Asking about a page touches none. A process that is gone reads as end of file.
        let page = self.parts.first().map_or(0, |part| part.address / PAGE_BYTES);
        matches!(self.pagemap.read_at(&mut [0; 8], page * 8), Ok(8))
    }

    pub(crate) fn pagemap(&self) -> &File {
        &self.pagemap
    }
}

fn open_directory(pid: u32) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())?)
}

fn open(pid: u32, process: &rustix::fd::OwnedFd, name: &'static str) -> Result<File, FindError> {
    rustix::fs::openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map(File::from)
        .map_err(|errno| explain(pid, name, errno.into()))
}

/// btrfs shows another device number in `maps` than `stat` does, so ask the link that stands for the mapping.
fn link_leads_to(process: &rustix::fd::OwnedFd, addresses: &Range<u64>, wanted: &std::fs::Metadata) -> bool {
    let link = format!("map_files/{:x}-{:x}", addresses.start, addresses.end);
    rustix::fs::statat(process, link, rustix::fs::AtFlags::empty())
        .is_ok_and(|found| found.st_dev == wanted.dev() && found.st_ino == wanted.ino())
}

fn explain(pid: u32, what: &'static str, source: io::Error) -> FindError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => FindError::Gone { pid },
        _ => FindError::Read { pid, what, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_is_said_to_be_gone() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES).unwrap();
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(matches!(GuestMemory::find(pid, &file), Err(FindError::Gone { .. })));
    }

    #[test]
    fn a_file_of_broken_pages_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(GuestMemory::find(1, &file), Err(FindError::Length { length: 0 })));
        file.set_len(PAGE_BYTES + 1).unwrap();
        assert!(matches!(GuestMemory::find(1, &file), Err(FindError::Length { .. })));
    }
}

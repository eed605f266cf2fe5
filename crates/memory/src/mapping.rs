//! Where a VMM process maps the file that is its guest's RAM.
//!
//! A [`GuestMemory`] is found once, when the VM starts, and stays valid while the process lives: it holds the
//! process's own `/proc` files, so a recycled process id can never be mistaken for it.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{Mode, OFlags};

use crate::PAGE_BYTES;

/// Longest `/proc/PID/maps` that is read. A VMM has some hundred lines of about 100 bytes; past this the process is
/// not one of ours and is refused.
const MAPS_BYTES_MAX: u64 = 16 << 20;

/// Whether writes of the guest reach the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// `MAP_PRIVATE`: what the guest wrote is in the process only and has to be captured.
    Private,
    /// `MAP_SHARED`: the file itself is the guest's RAM.
    Shared,
}

/// The RAM of a guest inside a living VMM process.
#[derive(Debug)]
pub struct GuestMemory {
    pid: u32,
    address: u64,
    length: u64,
    sharing: Sharing,
    mem: File,
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
    /// The process lives but does not map the whole file in one piece.
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
    /// Finds where `pid` maps `file`: all of it, from offset 0, at adjacent addresses. The mapping may be split over
    /// several lines of `/proc/PID/maps`, as `mprotect` and `madvise` leave it.
    pub fn find(pid: u32, file: &File) -> Result<GuestMemory, FindError> {
        let failed = |what| move |source: io::Error| explain(pid, what, source);
        let metadata = file.metadata().map_err(failed("the memory file"))?;
        let length = metadata.len();
        if length == 0 || length % PAGE_BYTES != 0 {
            return Err(FindError::Length { length });
        }
        let process = open_directory(pid).map_err(failed("/proc"))?;
        let open = |name: &'static str| {
            rustix::fs::openat(&process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map(File::from)
                .map_err(|errno| explain(pid, name, errno.into()))
        };
        let mem = open("mem")?;
        let pagemap = open("pagemap")?;
        let mut maps = String::new();
        let read = open("maps")?.take(MAPS_BYTES_MAX).read_to_string(&mut maps).map_err(failed("maps"))?;
        if read == 0 {
            return Err(FindError::Gone { pid });
        }
        let is_the_file = |line: &Line| {
            let device = rustix::fs::makedev(line.device.0, line.device.1);
            line.inode == metadata.ino()
                && (device == metadata.dev() || link_leads_to(&process, &line.addresses, &metadata))
        };
        let (address, sharing) = locate(&maps, length, is_the_file).ok_or(FindError::NotMapped { pid })?;
        Ok(GuestMemory { pid, address, length, sharing, mem, pagemap })
    }

    /// The process that runs the guest.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where the RAM begins in that process.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of RAM, a multiple of [`PAGE_BYTES`].
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether the guest writes into the file or into private copies.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Whether the process found still has its memory. A replaced process of the same id does not count.
    pub fn is_alive(&self) -> bool {
        // Reading a byte faults in one page of the file at worst. A process that is gone reads as end of file.
        matches!(self.mem.read_at(&mut [0; 1], self.address), Ok(1))
    }

    pub(crate) fn pagemap(&self) -> &File {
        &self.pagemap
    }
}

fn open_directory(pid: u32) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())?)
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

/// One line of `/proc/PID/maps`, without the name at its end.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    addresses: Range<u64>,
    sharing: Sharing,
    offset: u64,
    device: (u32, u32),
    inode: u64,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut fields = text.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let sharing = match fields.next()?.as_bytes() {
            [_, _, _, b'p'] => Sharing::Private,
            [_, _, _, b's'] => Sharing::Shared,
            _ => return None,
        };
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let addresses = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        (addresses.start < addresses.end).then_some(Line {
            addresses,
            sharing,
            offset,
            device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
            inode: fields.next()?.parse().ok()?,
        })
    }
}

/// The first place where `length` bytes of the file lie in order at adjacent addresses.
fn locate(maps: &str, length: u64, mut is_the_file: impl FnMut(&Line) -> bool) -> Option<(u64, Sharing)> {
    let mut found: Option<(Range<u64>, Sharing)> = None;
    for line in maps.lines().filter_map(Line::parse) {
        if !is_the_file(&line) {
            found = None;
            continue;
        }
        let continues = found.as_ref().is_some_and(|(so_far, sharing)| {
            line.addresses.start == so_far.end
                && line.offset == so_far.end - so_far.start
                && line.sharing == *sharing
        });
        found = match found {
            Some((so_far, sharing)) if continues => Some((so_far.start..line.addresses.end, sharing)),
            _ if line.offset == 0 => Some((line.addresses, line.sharing)),
            _ => None,
        };
        if let Some((so_far, sharing)) = &found
            && so_far.end - so_far.start == length
        {
            return Some((so_far.start, *sharing));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(maps: &str, length: u64, expected: Option<(u64, Sharing)>) {
        assert_eq!(locate(maps, length, |line| line.inode == 42), expected, "{maps}");
    }

    #[test]
    fn a_mapping_is_found_whole_or_split() {
        check("1000-3000 rw-p 00000000 fe:00 42 /ram\n", 0x2000, Some((0x1000, Sharing::Private)));
        check("1000-3000 rw-s 00000000 fe:00 42 /ram\n", 0x2000, Some((0x1000, Sharing::Shared)));
        check(
            "1000-2000 rw-p 0 fe:00 42 /ram\n2000-3000 r--p 1000 fe:00 42 /ram\n",
            0x2000,
            Some((0x1000, Sharing::Private)),
        );
    }

    #[test]
    fn what_is_not_the_whole_file_is_not_found() {
        check("", 0x2000, None);
        check("1000-3000 rw-p 00000000 fe:00 43 /other\n", 0x2000, None);
        check("1000-2000 rw-p 00000000 fe:00 42 /ram\n", 0x2000, None);
        check("1000-4000 rw-p 00000000 fe:00 42 /ram\n", 0x2000, None);
        check("1000-3000 rw-p 00001000 fe:00 42 /ram\n", 0x2000, None);
        check("1000-2000 rw-p 0 fe:00 42 /ram\n3000-4000 rw-p 1000 fe:00 42 /ram\n", 0x2000, None);
        check("1000-2000 rw-p 0 fe:00 42 /ram\n2000-3000 rw-p 0 fe:00 42 /ram\n", 0x2000, None);
        check("1000-2000 rw-p 0 fe:00 42 /ram\n2000-3000 rw-s 1000 fe:00 42 /ram\n", 0x2000, None);
    }

    #[test]
    fn a_second_mapping_counts_when_the_first_is_partial() {
        check(
            "1000-2000 r--p 0 fe:00 42 /ram\n5000-6000 rw-p 0 fe:00 42 /ram\n6000-7000 rw-p 1000 fe:00 42 /ram\n",
            0x2000,
            Some((0x5000, Sharing::Private)),
        );
    }

    #[test]
    fn garbage_lines_are_passed_over() {
        for text in [
            "",
            "x",
            "1000",
            "1000-2000",
            "2000-1000 rw-p 0 0:0 42",
            "zz-yy rw-p 0 0:0 42",
            "1-2 rw-x 0 0:0 1",
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

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

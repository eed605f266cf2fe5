//! One small file in memory that is both open and mapped, so that a value as long as the one it replaces is a few stores.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel::check;

/// What is mapped of a file; no value lies beyond it.
pub(super) const MAPPED_BYTES: usize = 4096;

/// A file in memory.
pub(super) struct Mapped {
    file: File,
    page: NonNull<u8>,
    /// Where in the file its value lies, as noted before the last snapshot; `None` when it has to be looked for.
    place: Mutex<Option<Range<usize>>>,
}

// SAFETY: the page is plain memory that lives as long as the program. It is written by `store` under the lock of `place`, and read
// by nobody through this pointer.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(super) fn new(file: File) -> io::Result<Mapped> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(ptr::null_mut(), MAPPED_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping was made above. Programs we start have no use for it.
        check(unsafe { libc::madvise(page, MAPPED_BYTES, libc::MADV_DONTFORK) })?;
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Mapped { file, page, place: Mutex::new(None) })
    }

    /// Reads the file and notes where `find` says its value lies.
    pub(super) fn note(&self, find: impl FnOnce(&[u8]) -> Option<Range<usize>>) {
        let mut text = [0; MAPPED_BYTES];
        let place = match self.file.read_at(&mut text, 0) {
            Ok(count) if count < MAPPED_BYTES => find(&text[..count]).filter(|place| place.end <= count),
            _ => None,
        };
        if place.is_some() {
            // SAFETY: the file has at least one byte, so its first page is there: reading and writing it back only makes the
            // processor's tables know it.
            unsafe { self.page.write_volatile(self.page.read_volatile()) };
        }
        *self.lock() = place;
    }

    /// Puts a value where the one before it was noted; `false` when that is unknown or of another length. Only while nobody can
    /// have shortened the file since: there is no memory behind a file's end.
    pub(super) fn store(&self, value: &[u8]) -> bool {
        let place = self.lock();
        let Some(place) = place.as_ref().filter(|place| place.len() == value.len()) else { return false };
        // SAFETY: `note` checked that the place lies within the file and its first page, and the caller that it still does.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), self.page.as_ptr().add(place.start), value.len()) };
        true
    }

    /// The beginning of the file.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, 0)
    }

    /// Makes the file's contents exactly `contents`.
    pub(super) fn overwrite(&self, contents: &[u8]) -> io::Result<()> {
        overwrite(&self.file, contents)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Range<usize>>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a file's contents exactly `contents`.
pub(super) fn overwrite(file: &File, contents: &[u8]) -> io::Result<()> {
    file.write_all_at(contents, 0)?;
    // SAFETY: no pointers.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), contents.len() as libc::off_t) })?;
    Ok(())
}

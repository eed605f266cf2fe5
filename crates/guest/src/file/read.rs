//! Downloads.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use guest_link::GuestPath;
use guest_link::message::{Event, Failure, FileFailure, Response};

use super::{Step, as_path, entry, failure};
use crate::process::account::Names;

/// What one step reads.
const STEP_BYTES: usize = 128 * 1024;

pub(crate) struct ReadTask {
    path: GuestPath,
    offset: u64,
    left: u64,
    sent: u64,
    file: Option<File>,
    /// Pipes and devices have no offsets.
    seekable: bool,
}

impl ReadTask {
    pub(super) fn new(path: GuestPath, offset: u64, length: Option<u64>) -> ReadTask {
        ReadTask { path, offset, left: length.unwrap_or(u64::MAX), sent: 0, file: None, seekable: true }
    }

    pub(super) fn step(&mut self) -> Result<Step, Failure> {
        let mut step = Step::default();
        if self.file.is_none() {
            step.events.push(self.open()?);
        }
        let Some(file) = &self.file else { return Ok(step) };
        let most = STEP_BYTES.min(usize::try_from(self.left).unwrap_or(STEP_BYTES));
        let mut data = vec![0; most];
        let mut filled = 0;
        while filled < most {
            let result = if self.seekable {
                file.read_at(&mut data[filled..], self.offset)
            } else {
                (&*file).read(&mut data[filled..])
            };
            match result {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    self.offset = self.offset.saturating_add(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A pipe that has nothing now is at its end for us: a download does not wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(failure(&error)),
            }
        }
        data.truncate(filled);
        self.left -= filled as u64;
        self.sent += filled as u64;
        step.data = data;
        if filled < most || self.left == 0 {
            step.outcome = Some(Ok(Response::Transferred { bytes: self.sent }));
        }
        Ok(step)
    }

    fn open(&mut self) -> Result<Event, Failure> {
        let path = as_path(&self.path);
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file =
            OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| failure(&error))?;
        let metadata = file.metadata().map_err(|error| failure(&error))?;
        if metadata.is_dir() {
            return Err(Failure::File(FileFailure::IsDirectory));
        }
        self.seekable = metadata.is_file();
        self.file = Some(file);
        let name = path.file_name().map_or(&b"/"[..], OsStrExt::as_bytes).to_vec();
        Ok(Event::Opened(entry::describe(name, path, &metadata, &Names::load())))
    }
}

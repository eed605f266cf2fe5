//! Writes what goes to a pool image to the disk below it early.
//!
//! A loop device keeps what it is given in memory, until somebody syncs a file of the pool: then all of it goes to the disk, and
//! they wait. So a disk that has begun to write would stand still for as long as much is being written and only then begin.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long the disk is left alone: a few megabytes come together in it.
const PAUSE: Duration = Duration::from_millis(2);

/// As long as this lives, what is written to the pool goes on to the disk by itself. It is only begun: who needs it there syncs.
#[derive(Debug)]
pub struct EarlyWrites {
    /// Ends the thread when it is dropped.
    _alive: Option<Sender<()>>,
}

impl EarlyWrites {
    /// Of a pool that is no image, nothing: its file system has the disk to itself.
    pub(super) fn none() -> Self {
        Self { _alive: None }
    }

    pub(super) fn of(image: &Path) -> Self {
        let Ok(file) = File::open(image) else { return Self::none() };
        let (alive, ended) = channel::<()>();
        let write = move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                memory::start_writing_out(&file, 0..0);
            }
        };
        let started = std::thread::Builder::new().name("pool-early-writes".to_owned()).spawn(write);
        Self { _alive: started.is_ok().then_some(alive) }
    }
}

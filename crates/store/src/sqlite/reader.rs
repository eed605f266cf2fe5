//! The threads that read. Each takes one job at a time, on a connection of its own that cannot write.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::connect;
use super::lane::Jobs;
use crate::StoreError;

/// Threads that read at once. Reads take microseconds; the second keeps a long list from delaying short ones.
const READERS: usize = 2;

/// Starts the threads.
pub(super) fn start(path: &Path, jobs: Jobs) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let jobs = Arc::new(Mutex::new(jobs));
    let mut threads = Vec::with_capacity(READERS);
    for number in 0..READERS {
        let db = connect::reader(path)?;
        let jobs = Arc::clone(&jobs);
        let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let thread = std::thread::Builder::new()
            .name(format!("store-read-{number}"))
            .spawn(move || {
                while let Some(mut job) = next() {
                    job.run(&db);
                    job.answer(None);
                }
            })
            .map_err(|error| StoreError::Database(error.into()))?;
        threads.push(thread);
    }
    Ok(threads)
}

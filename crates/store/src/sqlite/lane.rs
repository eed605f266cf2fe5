//! A bounded queue of jobs and the threads that take from it.

use std::sync::{PoisonError, RwLock};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc};

use super::job::{Durability, Job, job};
use crate::StoreError;

/// Jobs that wait in one lane; at the limit callers wait to queue.
const JOBS_WAITING_MAX: usize = 1024;

/// The receiving end of a lane.
pub(super) type Jobs = mpsc::Receiver<Box<dyn Job>>;

/// A queue and its threads. Dropping it finishes what is queued and joins them.
pub(super) struct Lane {
    queue: RwLock<Option<mpsc::Sender<Box<dyn Job>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Lane {
    /// A lane whose threads are started by `start`. They end when the queue does.
    pub(super) fn open(
        start: impl FnOnce(Jobs) -> Result<Vec<JoinHandle<()>>, StoreError>,
    ) -> Result<Self, StoreError> {
        let (queue, jobs) = mpsc::channel(JOBS_WAITING_MAX);
        let threads = start(jobs)?;
        Ok(Self { queue: RwLock::new(Some(queue)), threads: Mutex::new(threads) })
    }

    /// Has a thread do the work, and waits for its result.
    pub(super) async fn ask<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = queue.ok_or(StoreError::Closed)?;
        let (job, answer) = job(durability, work);
        queue.send(job).await.map_err(|_| StoreError::Closed)?;
        drop(queue);
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Takes no more jobs, finishes those that were taken, and ends the threads.
    pub(super) async fn close(&self) {
        self.take_no_more();
        let mut threads = self.threads.lock().await;
        let ending = std::mem::take(&mut *threads);
        if tokio::task::spawn_blocking(move || join(ending)).await.is_err() {
            tracing::error!("the runtime ended before the store had closed");
        }
    }

    fn take_no_more(&self) {
        *self.queue.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.take_no_more();
        join(std::mem::take(self.threads.get_mut()));
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            tracing::error!(thread = name, "a thread of the store has panicked");
        }
    }
}

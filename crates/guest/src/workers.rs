//! Threads for what may block: file systems and starting programs. The event loop never waits for them.
//!
//! A few exist from the start, so that they are part of every snapshot. When all are stuck (a dead FUSE or network mount) more are
//! made, up to a bound; then jobs wait.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::kernel;

/// Made at start.
const THREADS_MIN: usize = 2;

/// More are never made.
const THREADS_MAX: usize = 16;

/// Jobs are loops over system calls with heap buffers.
const STACK_BYTES: usize = 256 * 1024;

type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// Runs jobs and collects what they return.
pub(crate) struct Workers<T> {
    shared: Arc<Shared<T>>,
    threads: usize,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    work: Condvar,
    /// Readable when a result waits.
    bell: File,
}

struct Queue<T> {
    jobs: VecDeque<Job<T>>,
    results: VecDeque<T>,
    idle: usize,
}

impl<T: Send + 'static> Workers<T> {
    pub(crate) fn new() -> io::Result<Workers<T>> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { jobs: VecDeque::new(), results: VecDeque::new(), idle: 0 }),
            work: Condvar::new(),
            bell: kernel::event_counter()?,
        });
        let mut workers = Workers { shared, threads: 0 };
        for _ in 0..THREADS_MIN {
            workers.add_thread()?;
        }
        Ok(workers)
    }

    /// Readable when [`Workers::results`] has something.
    pub(crate) fn bell(&self) -> &File {
        &self.shared.bell
    }

    /// Queues a job.
    pub(crate) fn submit(&mut self, job: impl FnOnce() -> T + Send + 'static) {
        let crowded = {
            let mut queue = self.shared.lock();
            queue.jobs.push_back(Box::new(job));
            queue.jobs.len() > queue.idle
        };
        if crowded && self.threads < THREADS_MAX {
            // Without another thread the job waits for one of those there are.
            let _ = self.add_thread();
        }
        self.shared.work.notify_one();
    }

    /// Takes everything that is finished.
    pub(crate) fn results(&mut self) -> VecDeque<T> {
        // The counter's value does not matter: all results are taken.
        let _ = (&self.shared.bell).read(&mut [0; 8]);
        std::mem::take(&mut self.shared.lock().results)
    }

    fn add_thread(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || shared.serve())?;
        self.threads += 1;
        Ok(())
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let job = {
                let mut queue = self.lock();
                loop {
                    if let Some(job) = queue.jobs.pop_front() {
                        break job;
                    }
                    queue.idle += 1;
                    queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    queue.idle -= 1;
                }
            };
            let result = job();
            self.lock().results.push_back(result);
            // A full counter is readable already.
            let _ = (&self.bell).write(&1_u64.to_ne_bytes());
        }
    }
}

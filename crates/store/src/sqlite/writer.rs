//! The one thread that writes. Jobs that wait together share a transaction, and so the cost of its commit.
//!
//! Each job has a savepoint of its own: one that fails undoes nothing of another's. Nobody is answered before the commit, so an
//! answer never speaks of something that may still be lost, nor refuses somebody because of rows that were never kept.

use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::job::{Durability, Job, Verdict};
use super::lane::Jobs;
use crate::StoreError;

/// Jobs that share one transaction at most; more wait for the next.
const JOBS_PER_COMMIT_MAX: usize = 256;

/// Starts the thread.
pub(super) fn start(db: Connection, mut jobs: Jobs) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let thread = std::thread::Builder::new()
        .name("store-write".to_owned())
        .spawn(move || {
            let mut writer = Writer { db, durability: Durability::Process };
            let mut batch = Vec::new();
            while jobs.blocking_recv_many(&mut batch, JOBS_PER_COMMIT_MAX) > 0 {
                writer.perform(std::mem::take(&mut batch));
            }
        })
        .map_err(|error| StoreError::Database(error.into()))?;
    Ok(vec![thread])
}

/// The writing connection.
struct Writer {
    db: Connection,
    /// What its commits survive now.
    durability: Durability,
}

impl Writer {
    /// Runs jobs in one transaction and answers them.
    fn perform(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let lost = self.transaction(&mut jobs).err().map(Arc::new);
        if lost.is_some()
            && !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction that failed could not be undone");
        }
        for job in jobs {
            job.answer(lost.as_ref());
        }
    }

    fn transaction(&mut self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        let durability = jobs.iter().map(|job| job.durability()).max().unwrap_or(Durability::Process);
        self.survive(durability)?;
        self.execute("BEGIN IMMEDIATE")?;
        for job in jobs {
            self.execute("SAVEPOINT job")?;
            if job.run(&self.db) == Verdict::Undo {
                // Some failures, such as a full disk, end the whole transaction. Then this fails too, and all jobs with it.
                self.execute("ROLLBACK TO job")?;
            }
            self.execute("RELEASE job")?;
        }
        self.execute("COMMIT")
    }

    /// Chooses what the next commits survive. With `FULL` a commit flushes the whole log, earlier transactions included.
    fn survive(&mut self, durability: Durability) -> rusqlite::Result<()> {
        if self.durability != durability {
            let level = match durability {
                Durability::Process => "NORMAL",
                Durability::Power => "FULL",
            };
            self.db.pragma_update(None, "synchronous", level)?;
            self.durability = durability;
        }
        Ok(())
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(statement)?.execute(()).map(drop)
    }
}

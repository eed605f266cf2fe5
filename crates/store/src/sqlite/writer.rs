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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::Receiver;

    use super::super::job::job;
    use super::*;

    type Answer = Receiver<Result<(), StoreError>>;

    fn writer(schema: &str) -> Writer {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema).unwrap();
        Writer { db, durability: Durability::Process }
    }

    fn statement(text: &'static str) -> (Box<dyn Job>, Answer) {
        job(Durability::Process, move |db| Ok(db.execute_batch(text)?))
    }

    /// Performs statements as one batch and says which were answered with success.
    fn perform(writer: &mut Writer, statements: &[&'static str]) -> Vec<bool> {
        let (jobs, answers): (Vec<_>, Vec<_>) = statements.iter().map(|text| statement(text)).unzip();
        writer.perform(jobs);
        assert!(writer.db.is_autocommit(), "a transaction was left open");
        answers.into_iter().map(|mut answer| answer.try_recv().unwrap().is_ok()).collect()
    }

    fn rows(writer: &Writer) -> i64 {
        writer.db.query_row("SELECT count(*) FROM a", (), |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_failure_undoes_only_its_own_job() {
        let mut writer = writer("CREATE TABLE a (x UNIQUE)");
        let fails = "INSERT INTO a VALUES (2); INSERT INTO a VALUES (1);";
        let batch = ["INSERT INTO a VALUES (1)", fails, "INSERT INTO a VALUES (3)"];
        assert_eq!(perform(&mut writer, &batch), [true, false, true]);
        assert_eq!(rows(&writer), 2);
    }

    #[test]
    fn a_commit_that_fails_fails_everybody() {
        let mut writer = writer(
            "PRAGMA foreign_keys = ON; CREATE TABLE b (x PRIMARY KEY);
            CREATE TABLE a (x REFERENCES b (x) DEFERRABLE INITIALLY DEFERRED);",
        );
        let batch = ["INSERT INTO a VALUES (NULL)", "INSERT INTO a VALUES (1)"];
        assert_eq!(perform(&mut writer, &batch), [false, false]);
        assert_eq!(rows(&writer), 0);
        assert_eq!(perform(&mut writer, &batch[..1]), [true]);
        assert_eq!(rows(&writer), 1);
    }

    #[test]
    fn a_transaction_that_is_lost_fails_everybody() {
        let mut writer = writer("CREATE TABLE a (x UNIQUE)");
        // `OR ROLLBACK` ends the whole transaction, as a full disk may.
        let fails = "INSERT OR ROLLBACK INTO a VALUES (1)";
        let batch = ["INSERT INTO a VALUES (1)", fails, "INSERT INTO a VALUES (3)"];
        assert_eq!(perform(&mut writer, &batch), [false, false, false]);
        assert_eq!(rows(&writer), 0);
        assert_eq!(perform(&mut writer, &batch[..1]), [true]);
    }

    #[test]
    fn a_full_database_keeps_exactly_what_was_answered() {
        let mut writer = writer("CREATE TABLE a (x); PRAGMA max_page_count = 50;");
        let large = "INSERT INTO a VALUES (zeroblob(1000000))";
        let answers = perform(&mut writer, &["INSERT INTO a VALUES (1)", large, "INSERT INTO a VALUES (3)"]);
        assert!(!answers[1]);
        assert_eq!(rows(&writer), answers.iter().filter(|&&done| done).count() as i64);
        assert_eq!(perform(&mut writer, &["INSERT INTO a VALUES (4)"]), [true]);
    }
}

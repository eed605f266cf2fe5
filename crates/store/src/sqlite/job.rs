//! One piece of work for a thread that owns a connection, and its answer.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::StoreError;

/// What a write must survive before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// The end of this process. Whatever is lost with the power can be found out from what is left.
    Process,
    /// The loss of power.
    Power,
}

/// What is to become of what a job did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Undo,
}

/// Work whose result is kept until it may be told.
pub(super) trait Job: Send {
    /// What its changes must survive.
    fn durability(&self) -> Durability;
    /// Does the work. Called once.
    fn run(&mut self, db: &Connection) -> Verdict;
    /// Tells the caller the result, or that all was lost.
    fn answer(self: Box<Self>, lost: Option<&Arc<rusqlite::Error>>);
}

/// A closure, and who waits for what it returns.
struct Work<T, F> {
    durability: Durability,
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

/// Makes a job of a closure. The receiver fails when the job is dropped before it is answered.
pub(super) fn job<T, F>(
    durability: Durability,
    work: F,
) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>)
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
{
    let (caller, answer) = oneshot::channel();
    (Box::new(Work { durability, work: Some(work), result: None, caller }), answer)
}

impl<T, F> Job for Work<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, db: &Connection) -> Verdict {
        self.result = self.work.take().map(|work| work(db));
        match self.result {
            Some(Ok(_)) => Verdict::Keep,
            Some(Err(_)) | None => Verdict::Undo,
        }
    }

    fn answer(self: Box<Self>, lost: Option<&Arc<rusqlite::Error>>) {
        let result = match (lost, self.result) {
            // The job at which the database failed knows best why.
            (Some(_), Some(Err(cause @ StoreError::Database(_)))) => Err(cause),
            (Some(error), _) => Err(StoreError::Database(Box::new(Arc::clone(error)))),
            (None, result) => result.unwrap_or(Err(StoreError::Closed)),
        };
        // Nobody listens when the caller has given up; what was done stays done.
        let _ = self.caller.send(result);
    }
}

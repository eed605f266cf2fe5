//! When a lost link is opened again.

use std::future::pending;
use std::time::{Duration, Instant};

/// At once the first time, then ever more rarely, so that a guest which keeps breaking it
/// costs the host next to nothing. A request that needs the link does not wait for this.
#[derive(Debug)]
pub(super) struct Relink {
    due: Option<Instant>,
    delay: Duration,
    lost_last: Option<Instant>,
}

impl Relink {
    const DELAY_MAX: Duration = Duration::from_secs(30);
    /// A link that held this long was a good one.
    const GOOD: Duration = Duration::from_secs(60);

    pub(super) fn new() -> Self {
        Self { due: None, delay: Duration::ZERO, lost_last: None }
    }

    /// Takes note of a loss. `true` for one worth telling: not the next in a row of them.
    pub(super) fn lost(&mut self) -> bool {
        let now = Instant::now();
        let first = self.lost_last.is_none_or(|last| now.duration_since(last) > Self::GOOD);
        self.delay = match first {
            true => Duration::ZERO,
            false => (self.delay * 2).clamp(Duration::from_millis(100), Self::DELAY_MAX),
        };
        self.lost_last = Some(now);
        self.due = Some(now + self.delay);
        first
    }

    /// Until it is due.
    pub(super) async fn wait(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => pending().await,
        }
    }

    /// It is opened now.
    pub(super) fn done(&mut self) {
        self.due = None;
    }
}

//! What guests wrote to their consoles. A machine keeps only the newest bytes and gives each once; they are gathered here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::SandboxId;

use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;

/// Console text kept of one sandbox; older lines are dropped.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// How often a followed console is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Console {
    text: String,
    /// Bytes dropped from the front.
    dropped: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Consoles {
    known: Mutex<HashMap<SandboxId, Console>>,
}

impl Consoles {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Console>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.lock().remove(id);
    }

    fn add(&self, id: &SandboxId, text: &str) {
        let mut known = self.lock();
        let console = known.entry(id.clone()).or_default();
        console.text.push_str(&text.replace('\r', ""));
        if console.text.len() > KEPT_BYTES_MAX {
            // A guest may write anything: the place may be in the middle of a character.
            let from = console.text.ceil_char_boundary(console.text.len() - KEPT_BYTES_MAX);
            let cut = console.text[from..].find('\n').map_or(console.text.len(), |at| from + at + 1);
            console.text.drain(..cut);
            console.dropped += cut as u64;
        }
    }

    /// Whole lines from an offset on, and the offset after them.
    fn lines_from(&self, id: &SandboxId, offset: u64) -> (Vec<String>, u64) {
        let known = self.lock();
        let Some(console) = known.get(id) else { return (Vec::new(), offset) };
        let start = offset.saturating_sub(console.dropped) as usize;
        let rest = console.text.get(start..).unwrap_or_default();
        let whole = rest.rfind('\n').map_or(0, |at| at + 1);
        let lines = rest[..whole].split_inclusive('\n').map(str::to_owned).collect();
        (lines, console.dropped + (start.min(console.text.len()) + whole) as u64)
    }
}

impl Control {
    /// Console lines of a sandbox: whole ones, from an offset on. A sandbox that sleeps stays asleep.
    pub async fn console(
        &self,
        caller: &Caller,
        id: &str,
        offset: u64,
    ) -> Result<(Vec<String>, u64), ControlError> {
        let row = self.row(caller, id).await?;
        let sandbox = self.node().sandbox(&row.id)?;
        let text = sandbox.console().await.unwrap_or_default();
        self.consoles().add(&row.id, &text);
        Ok(self.consoles().lines_from(&row.id, offset))
    }

    /// Waits until it is time to look at a console again; `false` when the server goes down.
    pub async fn console_pause(&self) -> bool {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => true,
            () = self.closing().cancelled() => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_once() {
        let (consoles, id) = (Consoles::default(), SandboxId::from_random([1; 16]));
        assert_eq!(consoles.lines_from(&id, 0), (Vec::new(), 0));
        consoles.add(&id, "one\r\ntw");
        let (lines, offset) = consoles.lines_from(&id, 0);
        assert_eq!((lines, offset), (vec!["one\n".to_owned()], 4));
        consoles.add(&id, "o\n");
        assert_eq!(consoles.lines_from(&id, offset), (vec!["two\n".to_owned()], 8));
        for _ in 0..KEPT_BYTES_MAX / 4 {
            consoles.add(&id, "é23\n");
        }
        let (lines, end) = consoles.lines_from(&id, 8);
        assert!(lines.iter().all(|line| line == "é23\n") && lines.len() * 5 <= KEPT_BYTES_MAX);
        assert_eq!(consoles.lines_from(&id, end).0.len(), 0);
    }
}

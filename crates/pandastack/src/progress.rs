//! How far long work is: a bar where a person watches, plain lines where nobody does.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::output::say;
use crate::table::size;

/// How often the bar is drawn again.
const EVERY: Duration = Duration::from_millis(100);
const BAR_CHARACTERS: u64 = 24;

/// One piece of work, measured in bytes.
pub(crate) struct Progress {
    bar: bool,
    state: Mutex<State>,
}

struct State {
    label: String,
    done: u64,
    /// 0 when it is not known.
    total: u64,
    drawn: Option<Instant>,
}

impl Progress {
    /// Work that begins now.
    pub(crate) fn start(label: impl Into<String>, total: u64) -> Self {
        let bar = io::stderr().is_terminal();
        let label = label.into();
        if !bar {
            say(&label);
        }
        Self { bar, state: Mutex::new(State { label, done: 0, total, drawn: None }) }
    }

    /// More work than was known.
    pub(crate) fn expect(&self, bytes: u64) {
        self.state().total += bytes;
    }

    /// Work that is done.
    pub(crate) fn add(&self, bytes: u64) {
        let mut state = self.state();
        state.done += bytes;
        if self.bar && state.drawn.is_none_or(|drawn| drawn.elapsed() >= EVERY) {
            state.drawn = Some(Instant::now());
            draw(&state);
        }
    }

    /// Bytes done so far.
    pub(crate) fn done(&self) -> u64 {
        self.state().done
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        let state = self.state();
        if self.bar && state.drawn.is_some() {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn draw(state: &State) {
    let parts = BAR_CHARACTERS * state.done.min(state.total);
    let far = if let Some(full) = parts.checked_div(state.total) {
        let full = full as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR_CHARACTERS as usize - full));
        format!("[{bar}] {} of {}", size(state.done), size(state.total))
    } else {
        size(state.done)
    };
    // Nobody is left to tell when standard error is gone.
    drop(write!(io::stderr(), "\r\x1b[K{} {far}", state.label));
}

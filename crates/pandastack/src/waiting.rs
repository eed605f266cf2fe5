//! What is said while a creation waits: for room, or for a template that is prepared for its first use.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use client::Waiting;

use crate::moving_line::MovingLine;
use crate::output::say;

/// How long a template may stay at the same step before waiting for it is given up.
pub(crate) const STUCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Says it.
#[derive(Default)]
pub(crate) struct Teller {
    line: Mutex<Option<MovingLine>>,
}

impl Teller {
    /// Takes note of a wait, or of the end of waiting.
    pub(crate) fn tell(&self, waiting: &Waiting<'_>) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting {
            Waiting::Preparing { template, progress, since } => {
                let what = template.unwrap_or("the template");
                let label = || MovingLine::since(format!("preparing {what}"), *since);
                line.get_or_insert_with(label).step(&progress.step);
            }
            Waiting::NoRoom { message, delay } => {
                *line = None;
                say(format!("waiting {:.0} s: {message}", delay.as_secs_f64()));
            }
            Waiting::Over => *line = None,
        }
    }
}

//! One line that says how far something is: rewritten in place on a terminal; elsewhere a line of its own for each new stage.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use crate::duration::clock;
use crate::local_terminal;
use crate::output::say;
use crate::table::plain;

/// The line. Dropping it takes it away.
pub(crate) struct MovingLine {
    /// What all of it is about, such as `preparing base`.
    label: String,
    is_terminal: bool,
    begun: Instant,
    /// The stage that was told last, where there is no terminal.
    told: Option<String>,
    is_drawn: bool,
}

impl MovingLine {
    /// One about what begins now, with nothing shown yet.
    pub(crate) fn new(label: impl Into<String>) -> Self {
        Self::since(label, Instant::now())
    }

    /// One about what began earlier.
    pub(crate) fn since(label: impl Into<String>, begun: Instant) -> Self {
        Self {
            label: label.into(),
            is_terminal: io::stderr().is_terminal(),
            begun,
            told: None,
            is_drawn: false,
        }
    }

    /// Shows a step, such as `installing packages: 41 of 130`.
    pub(crate) fn step(&mut self, step: &str) {
        let step = plain(step);
        if self.is_terminal {
            let line = line(&self.label, &step, &clock(self.begun.elapsed()), local_terminal::columns());
            self.is_drawn = true;
            // Standard error that is gone needs no line.
            drop(write!(io::stderr(), "\r\x1b[K{line}"));
            return;
        }
        let stage = stage(&step);
        if self.told.as_deref() != Some(stage) {
            say(format!("{}: {stage}", self.label));
            self.told = Some(stage.to_owned());
        }
    }
}

impl Drop for MovingLine {
    fn drop(&mut self) {
        if self.is_drawn {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}

/// A step without its numbers and names: `installing packages` of `installing packages: 41 of 130`.
fn stage(step: &str) -> &str {
    step.split(':').next().unwrap_or(step).trim_end_matches(|one: char| one.is_ascii_digit() || one == ' ')
}

/// The line for a terminal of so many columns, whose last one stays free.
fn line(label: &str, step: &str, time: &str, columns: usize) -> String {
    // Before a number a second colon only disturbs.
    let step = match step.split_once(": ") {
        Some((stage, rest)) if rest.starts_with(|one: char| one.is_ascii_digit()) => {
            format!("{stage} {rest}")
        }
        _ => step.to_owned(),
    };
    let time = format!(" ({time})");
    let room = columns.saturating_sub(1 + time.chars().count());
    let text = format!("{label}: {step}");
    if text.chars().count() <= room {
        return text + &time;
    }
    let cut: String = text.chars().take(room.saturating_sub(1)).collect();
    let line = format!("{}…{time}", cut.trim_end());
    line.chars().take(columns.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_its_terminal() {
        let step = "installing packages: 41 of 130";
        assert_eq!(
            line("preparing base", step, "0:23", 80),
            "preparing base: installing packages 41 of 130 (0:23)"
        );
        assert_eq!(line("preparing base", step, "0:23", 40), "preparing base: installing pack… (0:23)");
        for columns in [0, 1, 5, 10, 20, 39, 80] {
            let found = line("preparing base", step, "12:23", columns).chars().count();
            assert!(found <= columns.saturating_sub(1), "{found} of {columns}");
        }
        assert_eq!(line("x", "packages: get libc6", "0:01", 80), "x: packages: get libc6 (0:01)");
    }

    #[test]
    fn stages_have_no_numbers() {
        for (step, expected) in [
            ("installing packages: 41 of 130", "installing packages"),
            ("packages: unpacking libc6 (2.36)", "packages"),
            ("waiting to begin", "waiting to begin"),
            ("boot 3", "boot"),
            ("", ""),
        ] {
            assert_eq!(stage(step), expected);
        }
    }
}

//! Samples and what is told of them.

use std::io::Write;

use serde::Serialize;

/// Times in milliseconds, and how many tries gave none.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Samples {
    pub(crate) ms: Vec<f64>,
    pub(crate) failures: Vec<String>,
}

/// The usual figures.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) failures: usize,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Samples {
    pub(crate) fn add<E: std::fmt::Display>(&mut self, outcome: Result<f64, E>) {
        match outcome {
            Ok(ms) => self.ms.push(ms),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let mut sorted = self.ms.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |fraction: f64| {
            let index = (sorted.len() as f64 * fraction).ceil() as usize;
            sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        Summary {
            count: sorted.len() + self.failures.len(),
            failures: self.failures.len(),
            min: at(0.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }

    pub(crate) fn tell(&self, name: &str) -> Summary {
        let summary = self.summary();
        say(&format!(
            "{name:<44} p50 {:>7.1}  p90 {:>7.1}  p99 {:>7.1}  min {:>7.1}  max {:>7.1} ms   {} of {} failed",
            summary.p50, summary.p90, summary.p99, summary.min, summary.max, summary.failures, summary.count
        ));
        for failure in self.failures.iter().take(3) {
            say(&format!("    failed: {failure}"));
        }
        summary
    }
}

/// One line for people.
pub(crate) fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

//! How far a template is.

use std::sync::Arc;

use contract::error::Progress;
use contract::time::rfc3339;
use domain::SnapshotId;
use node::BakeStage;

use crate::clock::now_ms;
use crate::error::ControlError;

/// How far a template is.
#[derive(Debug, Clone)]
pub(super) enum Readiness {
    Preparing(Preparing),
    Ready(SnapshotId),
    Failed(Arc<ControlError>),
}

/// What is being done about a template, since when, and when that last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Preparing {
    pub(super) step: String,
    started_ms: i64,
    changed_ms: i64,
}

impl Preparing {
    pub(super) fn begin() -> Self {
        let now = now_ms();
        Self { step: "waiting to begin".to_owned(), started_ms: now, changed_ms: now }
    }

    /// Takes note of a step; `false` where it is the one that is known.
    pub(super) fn note(&mut self, step: String, at_ms: i64) -> bool {
        let changed = step != self.step;
        if changed {
            self.step = step;
            self.changed_ms = at_ms;
        }
        changed
    }

    pub(super) fn view(&self) -> Progress {
        Progress {
            step: self.step.clone(),
            started_at: rfc3339(self.started_ms),
            changed_at: rfc3339(self.changed_ms),
        }
    }
}

/// A step of preparing a template, in words.
pub(crate) fn describe(stage: &BakeStage) -> String {
    match stage {
        BakeStage::Image(step) => step.message.clone(),
        BakeStage::Booting => "booting it for the first time".to_owned(),
        BakeStage::Warming(command) => format!("warming it up: {command}"),
        BakeStage::Saving => "saving it".to_owned(),
        BakeStage::Ready => "ready".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_that_differs_is_progress() {
        let mut preparing = Preparing { step: "booting".to_owned(), started_ms: 1000, changed_ms: 2000 };
        assert!(!preparing.note("booting".to_owned(), 5000));
        assert!(preparing.view().changed_at.starts_with("1970-01-01T00:00:02"));
        assert!(preparing.note("saving it".to_owned(), 6000));
        let view = preparing.view();
        assert_eq!(view.step, "saving it");
        assert!(view.started_at.starts_with("1970-01-01T00:00:01"), "{}", view.started_at);
        assert!(view.changed_at.starts_with("1970-01-01T00:00:06"), "{}", view.changed_at);
    }
}

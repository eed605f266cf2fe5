//! What workers bring back.

use guest_link::message::{Event, Failure, ProcessSpec, Response};

use super::Agent;
use crate::file;
use crate::process::spawn::Spawned;

/// The result of a job. `session` tells whether the stream it was for still is that stream.
pub(super) enum Completion {
    /// A process was started, or not.
    Spawned { session: u64, stream: u32, spec: Box<ProcessSpec>, spawned: Result<Spawned, Failure> },
    /// An answer was found.
    Answer { session: u64, stream: u32, events: Vec<Event>, outcome: Result<Response, Failure> },
    /// A file task made a step.
    Stepped { session: u64, stream: u32, task: Box<file::Task>, step: file::Step, cost: u32 },
    /// File systems are flushed.
    Flushed { session: u64 },
    /// Something was dropped.
    Nothing,
}

impl Agent {
    pub(super) fn complete(&mut self, completion: Completion) {
        let current = self.sessions;
        match completion {
            Completion::Spawned { session, stream, spec, spawned } => {
                self.spawned((session == current).then_some(stream), &spec, spawned);
            }
            Completion::Answer { session, stream, events, outcome } => {
                if session == current {
                    self.say_all(stream, &events);
                    self.answer(stream, outcome);
                }
            }
            Completion::Stepped { session, stream, task, step, cost } => {
                if session == current {
                    self.stepped(stream, task, step, cost);
                } else {
                    self.dispose(task);
                }
            }
            Completion::Flushed { session } => self.flushed(session),
            Completion::Nothing => {}
        }
    }
}

//! Why a context could not be started or a cell not be run. What user code does wrong is no error but a result.

use std::io;

use guest_link::client::CallError;
use guest_link::message::ExitStatus;

use crate::language::Language;
use crate::limits::{CODE_BYTES_MAX, QUEUE_MAX};
use crate::wire::MarkError;

/// Why a context was not started. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The guest has no program for the language.
    #[error("this sandbox has no {language}: install `{program}` or use a template that has it")]
    LanguageMissing {
        /// The language.
        language: Language,
        /// What is missing.
        program: &'static str,
    },
    /// The kernel could not be put into the guest.
    #[error("could not put the {language} kernel into the guest")]
    Install {
        /// The language.
        language: Language,
        /// Why.
        #[source]
        source: CallError,
    },
    /// The process could not be started.
    #[error("could not start the {language} kernel")]
    Spawn {
        /// The language.
        language: Language,
        /// Why.
        #[source]
        source: CallError,
    },
    /// The guest did not answer in time.
    #[error("the guest did not answer in time")]
    Silent,
}

/// Why a cell was not run, or why nothing is known of how it ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Too much code.
    #[error("code of {bytes} bytes is longer than {CODE_BYTES_MAX}")]
    CodeTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Too many cells wait.
    #[error("{QUEUE_MAX} cells already wait in this context")]
    QueueFull,
    /// The kernel did not begin with the cell in its time, because it still runs an earlier one that nobody waits for.
    #[error("the context is busy with an earlier cell; interrupt it or use another context")]
    Busy,
    /// The context's process has ended, or the guest has been started anew since.
    #[error("the context has ended and its state is lost; create a new one")]
    Gone {
        /// How it ended, where that is still known.
        status: Option<ExitStatus>,
    },
    /// The guest did not answer in time.
    #[error("the guest did not answer in time")]
    Silent,
    /// The kernel broke its protocol. The context should be closed.
    #[error("the context gave a malformed answer: {what}")]
    Malformed {
        /// What was wrong.
        what: &'static str,
    },
    /// Talking to the guest failed.
    #[error("could not talk to the guest")]
    Guest(#[source] CallError),
    /// The host gave no random numbers.
    #[error("could not make a cell id")]
    Random(#[source] io::Error),
}

impl From<MarkError> for RunError {
    fn from(error: MarkError) -> Self {
        RunError::Malformed { what: error.what() }
    }
}

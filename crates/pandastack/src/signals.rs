//! Signals for this program, one after the other, instead of its end.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Ctrl-C.
    Interrupt,
    /// Asked to end.
    Terminate,
    /// The terminal is gone.
    HangUp,
    /// Ctrl-\.
    Quit,
}

impl Told {
    /// The name that guests know it by.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::HangUp => "SIGHUP",
            Self::Quit => "SIGQUIT",
        }
    }

    /// The exit code of a program that it ended.
    pub(crate) const fn exit_code(self) -> u8 {
        128 + match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
            Self::HangUp => 1,
            Self::Quit => 3,
        }
    }
}

/// What is waited for.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Signals {
    /// From now on none of them ends this program by itself.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("watch for signals");
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
            hang_up: watch(SignalKind::hangup())?,
            quit: watch(SignalKind::quit())?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Told::Interrupt,
            Some(()) = self.terminate.recv() => Told::Terminate,
            Some(()) = self.hang_up.recv() => Told::HangUp,
            Some(()) = self.quit.recv() => Told::Quit,
            else => std::future::pending().await,
        }
    }
}

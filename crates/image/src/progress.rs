//! How long-running builds tell a person that they are alive.

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What is being made.
    pub stage: Stage,
    /// One line for a person; may change with any release.
    pub message: String,
    /// How much of this stage is done, from 0 to 1, where that is known.
    pub fraction: Option<f32>,
}

/// The parts of a guest that are made one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The kernel and its modules.
    Kernel,
    /// The first file system, with the guest program.
    Initramfs,
    /// The root file system.
    Rootfs,
}

impl Stage {
    /// A word for logs and displays.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Initramfs => "initramfs",
            Self::Rootfs => "root file system",
        }
    }
}

/// Receives steps. Called often and from any thread: it must not block.
pub trait Progress: Send + Sync {
    /// Takes note of one step.
    fn report(&self, step: Step);
}

impl<F: Fn(Step) + Send + Sync> Progress for F {
    fn report(&self, step: Step) {
        self(step);
    }
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _step: Step) {}
}

/// Shorthand for the builders of one stage.
#[derive(Clone, Copy)]
pub(crate) struct Reporter<'a> {
    pub(crate) stage: Stage,
    pub(crate) progress: &'a dyn Progress,
}

impl Reporter<'_> {
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.progress.report(Step { stage: self.stage, message: message.into(), fraction: None });
    }

    pub(crate) fn at(&self, fraction: f32, message: impl Into<String>) {
        let fraction = Some(fraction.clamp(0.0, 1.0));
        self.progress.report(Step { stage: self.stage, message: message.into(), fraction });
    }
}

//! The bounds of this crate, and what happens at each.

use std::time::Duration;

/// Longest code of a cell. Longer is refused before anything is sent.
pub const CODE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a cell runs when the caller does not say.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Cells that wait for their turn in one context. The next is refused.
pub const QUEUE_MAX: usize = 32;

/// How long a kernel that was just started may take to begin with its first cell. Emulated guests are slow; a kernel that needs
/// longer is reported as busy.
pub const BEGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an interrupted cell may take to stop. Then it is interrupted once more, since Node.js loses a signal that comes just
/// as the part of a cell before its first `await` ends; and then the context's processes are killed and its state is lost.
pub const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(2500);

/// How long a kernel that was left running may take to become a context's. Then one is started afresh.
pub const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a template's kernel may take to bring in what cells are likely to use. Then the template is not baked.
pub const PRELOAD_TIMEOUT: Duration = Duration::from_secs(240);

/// How long one step of talking to the guest (a file, a line of input) may take.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest mark in the output, its newline included. Within what the kernel writes to a pipe in one piece, so that nobody
/// else's output gets into the middle. A longer one is a protocol error.
pub const MARK_BYTES_MAX: usize = 4096;

/// Largest single record (a result, a traceback) that is fetched. A larger one is left out and reported as truncated.
pub const RECORD_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Output that [`Context::run`](crate::Context::run) keeps of each channel by default. More is read and thrown away.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Results of one cell that are kept by default. More are left out.
pub const RESULTS_MAX: usize = 256;

/// Bytes of all results of one cell that are kept by default. Results beyond it are left out.
pub const RESULTS_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Code of a one-shot run that is passed as an argument; the guest's kernel takes at most 128 KiB. Longer goes through a file.
pub const ARGUMENT_BYTES_MAX: usize = 100 * 1024;

/// How much a cell may say before it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Of standard output, and as much of standard error.
    pub output_bytes_max: usize,
    /// How many results.
    pub results_max: usize,
    /// How many bytes of them.
    pub results_bytes_max: usize,
}

impl RunLimits {
    /// What suits an answer that is held in memory.
    pub const USUAL: RunLimits = RunLimits {
        output_bytes_max: OUTPUT_BYTES_MAX,
        results_max: RESULTS_MAX,
        results_bytes_max: RESULTS_BYTES_MAX,
    };
}

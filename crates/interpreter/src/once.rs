//! Code that is run once, in a process of its own that keeps nothing.

use std::time::Duration;

use guest_link::client::{CallError, ExecLimits, Link};
use guest_link::message::{
    Failure, Parents, ProcessFailure, ProcessSpec, RemoveScope, User, WriteMode, WriteSpec,
};
use tokio::time::timeout;

use crate::cell::{Cell, CellId};
use crate::context::{Context, ContextSpec};
use crate::error::{RunError, StartError};
use crate::kernel::{CELLS_DIRECTORY, known_path};
use crate::language::Language;
use crate::limits::{ARGUMENT_BYTES_MAX, CODE_BYTES_MAX, OUTPUT_BYTES_MAX, STEP_TIMEOUT};
use crate::report::{Ending, RunResult};

/// A language for one-shot runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnceLanguage {
    /// `python3 -c`.
    Python,
    /// `node -e`.
    Node,
    /// `bash -c`.
    Bash,
    /// `sh -c`.
    Sh,
    /// `ruby -e`.
    Ruby,
    /// A context that lives for one cell.
    TypeScript,
}

/// What the code did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceResult {
    /// What it wrote, its beginning where that was too much.
    pub stdout: String,
    /// Its errors.
    pub stderr: String,
    /// As a shell tells it.
    pub exit_code: i32,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
    /// Whether output is missing.
    pub truncated: bool,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// Nobody knows the language.
    #[error(
        "`{name}` is not a language of one-shot runs; known are python, node, bash, sh, ruby and typescript"
    )]
    UnknownLanguage {
        /// The name, cut.
        name: String,
    },
    /// Too much code.
    #[error("code of {bytes} bytes is longer than {CODE_BYTES_MAX}")]
    CodeTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The guest has no such program.
    #[error("this sandbox has no `{program}`: install it or use a template that has it")]
    ProgramMissing {
        /// What is missing.
        program: &'static str,
    },
    /// The guest did not answer in time.
    #[error("the guest did not answer in time")]
    Silent,
    /// Talking to the guest failed.
    #[error("could not talk to the guest")]
    Guest(#[source] CallError),
    /// The context for TypeScript did not start.
    #[error("could not start a context")]
    Start(#[source] StartError),
    /// The context for TypeScript did not run the code.
    #[error("could not run the code")]
    Run(#[source] RunError),
}

/// Names of all languages for one-shot runs, other names included.
#[must_use]
pub const fn once_languages() -> [&'static str; 8] {
    ["python", "py", "node", "js", "bash", "sh", "ruby", "typescript"]
}

impl OnceLanguage {
    /// Understands a language's name and its usual other names.
    pub fn parse(name: &str) -> Result<OnceLanguage, OnceError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" => Ok(OnceLanguage::Python),
            "node" | "nodejs" | "js" | "javascript" => Ok(OnceLanguage::Node),
            "bash" | "shell" => Ok(OnceLanguage::Bash),
            "sh" => Ok(OnceLanguage::Sh),
            "ruby" | "rb" => Ok(OnceLanguage::Ruby),
            "typescript" | "ts" => Ok(OnceLanguage::TypeScript),
            _ => Err(OnceError::UnknownLanguage { name: name.chars().take(64).collect() }),
        }
    }

    /// Program, and the option after which it takes code as an argument.
    const fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            OnceLanguage::Python => Some(("python3", "-c")),
            OnceLanguage::Node => Some(("node", "-e")),
            OnceLanguage::Bash => Some(("bash", "-c")),
            OnceLanguage::Sh => Some(("sh", "-c")),
            OnceLanguage::Ruby => Some(("ruby", "-e")),
            OnceLanguage::TypeScript => None,
        }
    }
}

/// Runs code in a process of its own, at home and as root. After `limit` the process and what it started are killed.
pub async fn run_once(
    link: &Link,
    language: OnceLanguage,
    code: &str,
    limit: Duration,
) -> Result<OnceResult, OnceError> {
    if code.len() > CODE_BYTES_MAX {
        return Err(OnceError::CodeTooLong { bytes: code.len() });
    }
    let Some((program, option)) = language.program() else { return typescript(link, code, limit).await };
    let spec = |argv: [&str; 3]| {
        let argv = argv.into_iter().filter(|word| !word.is_empty());
        let mut spec = ProcessSpec::argv(argv);
        spec.user = Some(User::ROOT);
        spec.timeout_ms = Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        spec
    };
    // An argument cannot hold a NUL, a file can.
    if code.len() <= ARGUMENT_BYTES_MAX && !code.contains('\0') && !code.is_empty() {
        return execute(link, program, spec([program, option, code])).await;
    }
    let id = CellId::random().map_err(|error| OnceError::Run(RunError::Random(error)))?;
    let path = format!("{CELLS_DIRECTORY}/{id}");
    let write = async {
        let mut file = link.write_file(WriteSpec {
            path: known_path(&path),
            how: WriteMode::Replace,
            mode: Some(0o600),
            owner: None,
            parents: Parents::Create,
        })?;
        file.write(code.as_bytes()).await?;
        file.finish().await
    };
    timeout(STEP_TIMEOUT, write).await.map_err(|_| OnceError::Silent)?.map_err(OnceError::Guest)?;
    let result = execute(link, program, spec([program, "", &path])).await;
    let removal = timeout(STEP_TIMEOUT, link.remove(known_path(&path), RemoveScope::Single)).await;
    let result = result?;
    match removal.map_err(|_| OnceError::Silent)? {
        // The code may remove its own file.
        Ok(()) | Err(CallError::Guest(Failure::File(_))) => Ok(result),
        Err(error) => Err(OnceError::Guest(error)),
    }
}

async fn execute(link: &Link, program: &'static str, spec: ProcessSpec) -> Result<OnceResult, OnceError> {
    let limits = ExecLimits { stdout_bytes_max: OUTPUT_BYTES_MAX, stderr_bytes_max: OUTPUT_BYTES_MAX };
    let output = link.exec(spec, b"", limits).await.map_err(|error| match error {
        CallError::Guest(Failure::Process(ProcessFailure::ProgramNotFound)) => {
            OnceError::ProgramMissing { program }
        }
        error => OnceError::Guest(error),
    })?;
    Ok(OnceResult {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        exit_code: output.exit.status.shell_code(),
        timed_out: output.exit.timed_out,
        truncated: output.stdout_truncated || output.stderr_truncated,
    })
}

async fn typescript(link: &Link, code: &str, limit: Duration) -> Result<OnceResult, OnceError> {
    let context =
        Context::start(link, ContextSpec::new(Language::TypeScript)).await.map_err(OnceError::Start)?;
    let result = context.run(link, Cell::new(code).with_timeout(limit)).await;
    let closed = timeout(STEP_TIMEOUT, context.close(link)).await.map_err(|_| OnceError::Silent)?;
    let RunResult { stdout, mut stderr, stdout_truncated, stderr_truncated, exit, error, ending, .. } =
        result.map_err(OnceError::Run)?;
    closed.map_err(OnceError::Guest)?;
    if let Some(error) = error {
        stderr.push_str(&error.traceback);
        stderr.push('\n');
    }
    let timed_out = matches!(ending, Ending::TimedOut { .. });
    Ok(OnceResult {
        stdout,
        stderr,
        exit_code: exit,
        timed_out,
        truncated: stdout_truncated || stderr_truncated,
    })
}

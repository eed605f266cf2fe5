//! Commands in sandboxes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use contract::exec::{CommandLine, ExecAnswer, ExecRequest};
use guest_link::GuestPath;
use guest_link::client::{CallError, ExecLimits, Process};
use guest_link::message::{Exit, ProcessSpec, User};
use tracing::field::Empty;

use crate::access::InUse;
use crate::caller::Caller;
use crate::connection_process::{ConnectionProcess, OnDisconnect};
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::network_hint::NetworkHint;
use crate::operation::{operation, traced};
use crate::partial::partial;

/// Output of one command that is collected, each of stdout and stderr; more is dropped and said to be.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Longest command line.
const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Longest a command may run under a deadline of its own.
const TIMEOUT_SECONDS_MAX: f64 = 7.0 * 86_400.0;
/// How long a guest gets to report a command that it should have killed.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// Where a command of a connection reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputSource {
    /// What its request holds, then nothing.
    Given,
    /// The connection, through [`ConnectionProcess::take_input`].
    Connection,
}

/// A command under way whose output is followed.
pub struct ExecStream {
    /// The command.
    pub process: Process,
    /// Its deadline, for error texts.
    pub timeout: Option<Duration>,
    /// Whether it fails for want of a network, as far as its output was shown to it.
    pub hint: NetworkHint,
    sandbox: InUse,
}

/// Seconds as a caller gave them.
pub(crate) fn timeout(seconds: Option<f64>) -> Result<Option<Duration>, ControlError> {
    match seconds {
        None => Ok(None),
        Some(0.0) => Ok(None),
        Some(seconds) if seconds > 0.0 && seconds <= TIMEOUT_SECONDS_MAX => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        Some(_) => Err(ControlError::invalid(format!(
            "timeout_seconds must be between 0 and {TIMEOUT_SECONDS_MAX:.0}"
        ))),
    }
}

pub(crate) fn guest_path(text: &str) -> Result<GuestPath, ControlError> {
    GuestPath::parse(text).map_err(|error| ControlError::invalid(format!("path: {error}")))
}

/// Fills in what every command of a sandbox gets.
pub(crate) fn furnish(
    mut spec: ProcessSpec,
    sandbox: &InUse,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<&str>,
    user: Option<String>,
) -> Result<ProcessSpec, ControlError> {
    let mut variables = sandbox.row.env.clone();
    if let Some(env) = env {
        crate::names::env(&env)?;
        variables.extend(env);
    }
    spec.env = variables.into_iter().collect();
    spec.cwd = cwd.filter(|cwd| !cwd.is_empty()).map(guest_path).transpose()?;
    spec.user = user.filter(|user| !user.is_empty()).map(User::Name);
    Ok(spec)
}

fn spec(request: &mut ExecRequest, sandbox: &InUse) -> Result<(ProcessSpec, Option<Duration>), ControlError> {
    let timeout = timeout(request.timeout_seconds)?;
    let command = command(std::mem::take(&mut request.cmd));
    let mut spec =
        furnish(command, sandbox, request.env.take(), request.cwd.as_deref(), request.user.take())?;
    spec.timeout_ms = timeout.map(|timeout| timeout.as_millis().max(1) as u64);
    Ok((spec, timeout))
}

/// A command as a guest takes it.
pub(crate) fn command(line: CommandLine) -> ProcessSpec {
    match line {
        CommandLine::Shell(line) => ProcessSpec::shell(line),
        CommandLine::Argv(arguments) => ProcessSpec::argv(arguments),
    }
}

/// Refuses a command that is none.
pub(crate) fn check(line: &CommandLine) -> Result<(), ControlError> {
    let (empty, bytes) = match line {
        CommandLine::Shell(line) => (line.trim().is_empty(), line.len()),
        CommandLine::Argv(arguments) => (
            arguments.first().is_none_or(|program| program.trim().is_empty()),
            arguments.iter().map(|argument| argument.len() + 1).sum(),
        ),
    };
    if empty {
        return Err(ControlError::invalid("cmd required"));
    }
    if bytes > COMMAND_BYTES_MAX {
        let message = format!("cmd is longer than {COMMAND_BYTES_MAX} bytes");
        return Err(ControlError::new(Kind::TooLarge, message));
    }
    Ok(())
}

/// What a command that was killed at its deadline answers.
pub fn exec_failure(exit: &Exit, timeout: Option<Duration>) -> Option<ControlError> {
    exit.timed_out.then(|| {
        let seconds = timeout.unwrap_or_default().as_secs_f64();
        ControlError::new(Kind::Timeout, format!("command timeout after {seconds} s"))
            .hint("raise the timeout, or run it in the background")
    })
}

impl Control {
    /// Runs a command to its end. A command that ends badly is no error.
    pub async fn exec(
        &self,
        caller: &Caller,
        id: &str,
        mut request: ExecRequest,
    ) -> Result<ExecAnswer, ControlError> {
        check(&request.cmd)?;
        let sandbox = self.enter(caller, id).await?;
        let started = Instant::now();
        let (spec, timeout) = spec(&mut request, &sandbox)?;
        let limits =
            ExecLimits { stdout_bytes_max: EXEC_OUTPUT_BYTES_MAX, stderr_bytes_max: EXEC_OUTPUT_BYTES_MAX };
        let input = request.stdin.unwrap_or_default();
        let span = operation!("sandbox.exec", sandbox.row, exit_code = Empty);
        let running = self.within(timeout, sandbox.link.exec(spec, input.as_bytes(), limits));
        let output = traced(span.clone(), running).await?;
        span.record("exit_code", output.exit.status.shell_code());
        drop(span);
        self.measurements().executed(started.elapsed());
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        let truncated = output.stdout_truncated || output.stderr_truncated;
        if let Some(error) = exec_failure(&output.exit, timeout) {
            return Err(error.partial(partial(&stdout, &stderr, truncated)));
        }
        let mut hint = self.network_hint(&sandbox.row);
        hint.look(stdout.as_bytes());
        hint.look(stderr.as_bytes());
        Ok(ExecAnswer {
            hint: hint.tell(output.exit.status.shell_code()),
            stdout,
            stderr,
            exit_code: output.exit.status.shell_code(),
            duration_ms: output.exit.duration_ms,
            truncated,
            process_id: output.process.0,
        })
    }

    /// Starts a command and follows its output.
    pub async fn exec_stream(
        &self,
        caller: &Caller,
        id: &str,
        mut request: ExecRequest,
    ) -> Result<ExecStream, ControlError> {
        check(&request.cmd)?;
        let sandbox = self.enter(caller, id).await?;
        self.start_stream(sandbox, &mut request, InputSource::Given).await
    }

    /// Starts a command that is killed when it is no longer attended to; also its deadline, for error texts.
    pub async fn exec_attended(
        &self,
        caller: &Caller,
        id: &str,
        mut request: ExecRequest,
        input: InputSource,
    ) -> Result<(ConnectionProcess, Option<Duration>), ControlError> {
        check(&request.cmd)?;
        let sandbox = self.enter(caller, id).await?;
        let ExecStream { process, timeout, sandbox, .. } =
            self.start_stream(sandbox, &mut request, input).await?;
        Ok((ConnectionProcess::new(self, sandbox, process, OnDisconnect::Kill), timeout))
    }

    async fn start_stream(
        &self,
        sandbox: InUse,
        request: &mut ExecRequest,
        from: InputSource,
    ) -> Result<ExecStream, ControlError> {
        let (mut spec, timeout) = spec(request, &sandbox)?;
        let input = request.stdin.take().unwrap_or_default();
        if !input.is_empty() || from == InputSource::Connection {
            spec.stdin = guest_link::message::Stdin::Pipe;
        }
        let span = operation!("sandbox.start_process", sandbox.row);
        let mut process = traced(span, async { Ok(sandbox.link.start(spec).await?) }).await?;
        let given = if from == InputSource::Given { process.take_input() } else { None };
        if let Some(stdin) = given {
            self.tasks().spawn(async move {
                // A process that ends without reading it all is none of our business.
                if stdin.write(input.as_bytes()).await.unwrap_or(false) {
                    stdin.close();
                }
            });
        }
        let hint = self.network_hint(&sandbox.row);
        Ok(ExecStream { process, timeout, hint, sandbox })
    }

    /// The guest keeps the deadline; this one is for a guest that does not.
    pub(crate) async fn within<T>(
        &self,
        timeout: Option<Duration>,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, ControlError> {
        let Some(timeout) = timeout else { return Ok(work.await?) };
        match tokio::time::timeout(timeout.saturating_add(KILL_GRACE), work).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => {
                Err(ControlError::new(Kind::Timeout, "command timeout: the guest did not answer in time"))
            }
        }
    }
}

/// Output as text, without a copy where it is text.
pub(crate) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

//! Processes that outlive the request that started them: started, listed, written to, signalled, followed from any offset.

use contract::exec::CommandLine;
use contract::process::{Process, ProcessInput, ProcessSignal, SignalName, StartProcess};
use guest_link::client::Process as Following;
use guest_link::message::{Command, InputEnd, Offsets, ProcessId, ProcessInfo, SignalScope, Stdin};

use crate::access::InUse;
use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::exec::{check, command, furnish, timeout};
use crate::names;

/// Signals that have names here.
const SIGNALS: [(&str, i32); 12] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];
const SIGNAL_MAX: i32 = 64;

pub(crate) fn view(info: ProcessInfo) -> Process {
    let command = match info.command {
        Command::Shell(line) => line,
        Command::Argv(arguments) => arguments.join(" "),
    };
    Process {
        id: info.process.0,
        pid: info.pid,
        command,
        tag: info.tag,
        running: info.exit.is_none(),
        exit_code: info.exit.map(|exit| exit.status.shell_code()),
    }
}

pub(crate) fn signal_number(signal: Option<SignalName>) -> Result<i32, ControlError> {
    let number = match signal {
        None => Some(15),
        Some(SignalName::Number(number)) => (1..=SIGNAL_MAX).contains(&number).then_some(number),
        Some(SignalName::Name(name)) => {
            let upper = name.to_ascii_uppercase();
            let plain = upper.strip_prefix("SIG").unwrap_or(&upper);
            SIGNALS.iter().find(|(known, _)| *known == plain).map(|(_, number)| *number)
        }
    };
    number.ok_or_else(|| {
        ControlError::invalid("signal must be a number from 1 to 64 or a name such as SIGTERM")
    })
}

impl Control {
    /// Starts a process and does not wait for it.
    pub async fn start_process(
        &self,
        caller: &Caller,
        id: &str,
        request: StartProcess,
    ) -> Result<Process, ControlError> {
        let line = match (request.cmd, request.argv) {
            (Some(line), None) => line,
            (None, Some(arguments)) => CommandLine::Argv(arguments),
            (Some(_), Some(_)) => {
                return Err(ControlError::invalid("give `cmd` or `argv`, and only one of them"));
            }
            (None, None) => return Err(ControlError::invalid("cmd required")),
        };
        check(&line)?;
        let sandbox = self.enter(caller, id).await?;
        let mut spec = furnish(command(line), &sandbox, request.env, request.cwd.as_deref(), request.user)?;
        spec.timeout_ms = timeout(request.timeout_seconds)?.map(|timeout| timeout.as_millis().max(1) as u64);
        spec.tag = request.tag.map(|tag| names::label(&tag)).transpose()?;
        if request.stdin.unwrap_or(false) {
            spec.stdin = Stdin::Pipe;
        }
        let started = sandbox.link.start_detached(spec).await?;
        Ok(view(sandbox.link.process(started.process).await?))
    }

    /// All processes that were started through the platform: running, and some that ended.
    pub async fn processes(&self, caller: &Caller, id: &str) -> Result<Vec<Process>, ControlError> {
        let sandbox = self.enter_to_look(caller, id).await?;
        Ok(sandbox.link.processes().await?.into_iter().map(view).collect())
    }

    /// One process.
    pub async fn process(&self, caller: &Caller, id: &str, process: u32) -> Result<Process, ControlError> {
        let sandbox = self.enter_to_look(caller, id).await?;
        Ok(view(sandbox.link.process(ProcessId(process)).await?))
    }

    /// Writes to a process.
    pub async fn process_input(
        &self,
        caller: &Caller,
        id: &str,
        process: u32,
        input: ProcessInput,
    ) -> Result<(), ControlError> {
        let sandbox = self.enter(caller, id).await?;
        let end = if input.close.unwrap_or(false) { InputEnd::Close } else { InputEnd::KeepOpen };
        Ok(sandbox.link.input(ProcessId(process), input.data.as_bytes(), end).await?)
    }

    /// Signals a process and everything it started.
    pub async fn process_signal(
        &self,
        caller: &Caller,
        id: &str,
        process: u32,
        signal: ProcessSignal,
    ) -> Result<(), ControlError> {
        let number = signal_number(signal.signal)?;
        let sandbox = self.enter(caller, id).await?;
        Ok(sandbox.link.signal(ProcessId(process), number, SignalScope::Group).await?)
    }

    /// Follows a process's output from an offset on.
    pub async fn follow_process(
        &self,
        caller: &Caller,
        id: &str,
        process: u32,
        from: Offsets,
    ) -> Result<(InUse, Following), ControlError> {
        let sandbox = self.enter_to_look(caller, id).await?;
        let following = sandbox.link.attach(ProcessId(process), from).await?;
        Ok((sandbox, following))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_numbers_and_names() {
        let name = |text: &str| Some(SignalName::Name(text.to_owned()));
        for (signal, number) in
            [(None, 15), (name("SIGKILL"), 9), (name("int"), 2), (Some(SignalName::Number(64)), 64)]
        {
            assert_eq!(signal_number(signal).unwrap(), number);
        }
        for signal in [name("SIGNOPE"), name(""), Some(SignalName::Number(0)), Some(SignalName::Number(65))] {
            assert!(signal_number(signal).is_err());
        }
    }
}

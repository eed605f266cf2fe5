//! `pandastack run`: from code here to code that ran in a machine of its own.
//!
//! ```text
//! make a sandbox ─► send the local files that the command names ─► run it, attached ─► delete the sandbox, however it went
//! ```

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use client::{Api, Command};
use contract::sandbox::CreateSandbox;

use crate::attached::{self, Ended, Sink, Stdin};
use crate::command::sandbox::Origin;
use crate::connection::Connection;
use crate::duration::seconds;
use crate::guest_command;
use crate::output::{Format, report_error, say, warn};
use crate::quoting::line;
use crate::signals::{Signals, Told};
use crate::transfer::{self, Manner};

/// Where the files go and the command runs.
const WORKING_DIRECTORY: &str = "/workspace";
/// A sandbox that this program could not delete, because it was killed, goes by itself after so much idleness.
const TTL_SECONDS: i64 = 600;
/// Tells which of its arguments are not there.
const MISSING: &str = r#"for path; do [ -e "$path" ] || printf '%s\0' "$path"; done"#;
/// How often deleting is tried.
const DELETE_TRIES: u32 = 3;

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    origin: Origin,
    /// Send this file or directory too: to the same place below the working directory, or where it says.
    #[arg(long, short, value_name = "LOCAL[:PATH]")]
    file: Vec<String>,
    /// Send nothing but what --file names.
    ///
    /// Otherwise what the command names is sent: files and directories below this directory, and files named by a whole path that
    /// the sandbox does not have.
    #[arg(long)]
    no_files: bool,
    /// Time after which the command is killed, such as 90 or 5m [default: never].
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<f64>,
    /// The user who runs it [default: root].
    #[arg(long, short)]
    user: Option<String>,
    /// Leave standard input alone.
    #[arg(long, short = 'n')]
    no_stdin: bool,
    /// Keep the sandbox; its id is said at the end.
    #[arg(long)]
    keep: bool,
    /// A line for the shell, or a program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    let files = files(&arguments, &std::env::current_dir().context("find the current directory")?)?;
    let mut signals = Signals::watch()?;
    let request = CreateSandbox { ttl_seconds: Some(TTL_SECONDS), ..arguments.origin.clone().request()? };
    if arguments.origin.no_wait {
        api.stop_waiting();
    }
    let (sandbox, told) = match create(&api, &request, &mut signals).await? {
        Creation::Done(sandbox, told) => (sandbox, told),
        Creation::Left(told) => return Ok(Ended::by(told).exit_code()),
    };
    let outcome = match told {
        Some(told) => Ok(Ended::by(told)),
        None => work(&api, &sandbox, &arguments, &files, &mut signals).await,
    };
    if arguments.keep {
        say(format!("kept: {sandbox}"));
    } else if let Err(error) = delete(&api, &sandbox).await {
        let error = error
            .context(format!("delete sandbox {sandbox}; it goes by itself after {TTL_SECONDS} idle seconds"));
        match outcome {
            // What went wrong first is what is answered.
            Err(_) => report_error(&error, Format::Table),
            Ok(_) => return Err(error),
        }
    }
    Ok(outcome?.exit_code())
}

/// What became of a creation.
enum Creation {
    /// There is a sandbox; perhaps a signal came meanwhile.
    Done(String, Option<Told>),
    /// A signal came while the server had not begun to make it.
    Left(Told),
}

/// Makes a sandbox. Told to end while it waits for a template or for room, it waits no longer; while the server makes the sandbox, it
/// waits for it, so that it can be deleted.
async fn create(api: &Api, request: &CreateSandbox, signals: &mut Signals) -> anyhow::Result<Creation> {
    let creating = api.create_sandbox(request);
    tokio::pin!(creating);
    let mut told = None;
    loop {
        tokio::select! {
            made = &mut creating => {
                return match (made, told) {
                    (Ok(made), told) => {
                        warn(&made.warnings);
                        Ok(Creation::Done(made.id, told))
                    }
                    (Err(error), Some(told)) if error.refusal().is_some() => Ok(Creation::Left(told)),
                    (Err(error), _) => Err(error).context("make a sandbox"),
                };
            }
            // Pressed once more, it is left as it is.
            signal = signals.next() => match told.replace(signal) {
                None => {
                    api.stop_waiting();
                    say("stopping; press Ctrl-C once more to leave at once");
                }
                Some(_) => bail!("left while a sandbox was being made; it goes by itself after {TTL_SECONDS} idle seconds"),
            },
        }
    }
}

async fn work(
    api: &Api,
    sandbox: &str,
    arguments: &Arguments,
    files: &[(PathBuf, String)],
    signals: &mut Signals,
) -> anyhow::Result<Ended> {
    let sending = async {
        transfer::ensure_directory(api, sandbox, WORKING_DIRECTORY).await?;
        let mut files = files.to_vec();
        files.extend(missing(api, sandbox, absolute(arguments)).await?);
        if !files.is_empty() {
            transfer::send(api, sandbox, &files, Manner::default(), "sending files").await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        sent = sending => sent?,
        told = signals.next() => return Ok(Ended::by(told)),
    }
    let command = Command {
        cmd: line(&arguments.command).into(),
        cwd: Some(WORKING_DIRECTORY.to_owned()),
        user: arguments.user.clone(),
        timeout_seconds: arguments.timeout,
        ..Command::default()
    };
    let stdin = if arguments.no_stdin { Stdin::Never } else { Stdin::WhenPiped };
    attached::run(api, sandbox, command, stdin, signals, &mut Sink::Own).await
}

async fn delete(api: &Api, sandbox: &str) -> anyhow::Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match api.delete_sandbox(sandbox).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if tries < DELETE_TRIES => {
                tracing::debug!(%error, "deleting failed");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            other => return Ok(other?),
        }
    }
}

/// What is sent, and where to: words of the command that are files or directories below this directory, and what --file names.
fn files(arguments: &Arguments, here: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for given in &arguments.file {
        let (local, path) = match given.split_once(':') {
            Some((local, path)) => (PathBuf::from(local), Some(path.to_owned())),
            None => (PathBuf::from(given), None),
        };
        let path = match (path, below(&local)) {
            (Some(path), _) if path.starts_with('/') => path,
            (Some(path), _) => format!("{WORKING_DIRECTORY}/{path}"),
            (None, Some(below)) => below,
            (None, None) => bail!("{given} is not below this directory: say where it goes, as {given}:PATH"),
        };
        std::fs::metadata(here.join(&local)).with_context(|| format!("look at {}", local.display()))?;
        found.push((local, path));
    }
    let mut named = BTreeSet::new();
    for (at, word) in arguments.command.iter().enumerate() {
        // A program is looked for in the sandbox, unless it is named as a path; one word is a line for the shell.
        let program = at == 0 && !word.contains('/');
        let line = arguments.command.len() == 1 && word.contains(char::is_whitespace);
        if arguments.no_files || program || line || !here.join(word).exists() {
            continue;
        }
        match below(Path::new(word)) {
            Some(path) if named.insert(path.clone()) => found.push((PathBuf::from(word), path)),
            None if word.contains("..") => {
                say(format!("not sent: {word} is not below this directory; send it with --file {word}:NAME"));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Words of the command that name a file of this host by its whole path.
fn absolute(arguments: &Arguments) -> Vec<String> {
    let is_line = arguments.command.len() == 1 && arguments.command[0].contains(char::is_whitespace);
    if arguments.no_files || is_line {
        return Vec::new();
    }
    let named: BTreeSet<&String> = arguments.command.iter().filter(|word| word.starts_with('/')).collect();
    named.into_iter().filter(|word| Path::new(word).is_file()).cloned().collect()
}

/// Those that the sandbox does not have: `/usr/bin/python3` and `/etc/hosts` mean its own.
async fn missing(api: &Api, sandbox: &str, paths: Vec<String>) -> anyhow::Result<Vec<(PathBuf, String)>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let done = guest_command::run(api, sandbox, MISSING, &paths).await?;
    let missing = String::from_utf8_lossy(&done.stdout);
    let missing: BTreeSet<&str> = missing.split('\0').collect();
    let paths = paths.into_iter().filter(|path| missing.contains(path.as_str()));
    Ok(paths.map(|path| (PathBuf::from(&path), path)).collect())
}

/// Where a path below this directory goes; nothing for one that is not below it.
fn below(path: &Path) -> Option<String> {
    let mut below = String::from(WORKING_DIRECTORY);
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                below.push('/');
                below.push_str(name.to_str()?);
            }
            _ => return None,
        }
    }
    Some(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: Arguments,
    }

    #[test]
    fn files_that_are_named_are_sent() {
        let here = std::env::temp_dir().join(format!("pandastack-run-{}", std::process::id()));
        std::fs::create_dir_all(here.join("src")).unwrap();
        for name in ["a.py", "python3", "src/b.py"] {
            std::fs::write(here.join(name), "").unwrap();
        }
        let check = |words: &[&str], expected: &[(&str, &str)]| {
            let line = Line::parse_from(["run"].iter().chain(words));
            let found = files(&line.run, &here).unwrap();
            let expected: Vec<_> =
                expected.iter().map(|(from, to)| (PathBuf::from(from), (*to).into())).collect();
            assert_eq!(found, expected, "{words:?}");
        };
        check(&["python3", "a.py", "--verbose", "nope.py"], &[("a.py", "/workspace/a.py")]);
        check(
            &["--template", "x", "--", "ls", "src", "./src/b.py"],
            &[("src", "/workspace/src"), ("./src/b.py", "/workspace/src/b.py")],
        );
        check(&["./a.py", "a.py", "a.py"], &[("./a.py", "/workspace/a.py")]);
        check(&["cat", "/etc/passwd", "../x"], &[]);
        check(&["--no-files", "--file", "a.py:b/c.py", "cat", "a.py"], &[("a.py", "/workspace/b/c.py")]);
        check(&["cat a.py"], &[]);
        let whole = here.join("a.py").display().to_string();
        let named = |words: &[&str]| absolute(&Line::parse_from(["run"].iter().chain(words)).run);
        assert!(named(&["--no-files", "python3", &whole]).is_empty());
        assert!(named(&[&format!("cat {whole}")]).is_empty());
        assert_eq!(named(&["python3", &whole, "/nonesuch", &whole, "/tmp"]), [whole]);
        std::fs::remove_dir_all(here).unwrap();
    }
}

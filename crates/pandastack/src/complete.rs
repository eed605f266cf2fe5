//! What shells offer when a person presses Tab: commands and options as they are written down here, and names and ids as the server
//! knows them now.
//!
//! A shell's script (`pandastack completions`) calls this program with [`VARIABLE`] set. A server that does not answer soon, refuses, or is
//! not known has nothing to offer, and says nothing: a person is in the middle of a line.

use std::ffi::OsStr;
use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use clap::Command;
use clap::builder::StyledStr;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::{CompleteEnv, Shells};
use client::Api;
use contract::sandbox::{Sandbox, SandboxFilter};

use crate::connection::Connection;
use crate::context_file::ContextFile;

/// Set by the shells' scripts.
const VARIABLE: &str = "PANDASTACK_COMPLETE";
/// How long the server may take. With the start of this program it stays below a second.
const TIMEOUT: Duration = Duration::from_millis(700);
/// Most that is offered; a longer list is not read.
const OFFERED_MAX: usize = 200;

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Sandboxes,
    /// A path here, or a sandbox and a path in it.
    Places,
    Snapshots,
    Templates,
    Volumes,
    Contexts,
}

/// A word that may be meant, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    word: String,
    about: String,
}

/// What an argument of a command names, if the server or a file here knows its values.
fn named(path: &[String], argument: &str) -> Option<Named> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (path.as_slice(), argument) {
        (["sandbox" | "fs", ..], "id" | "ids" | "parent" | "root") => Some(Named::Sandboxes),
        (["sandbox", "cp"], "from" | "to") => Some(Named::Places),
        (["snapshot", "list"] | ["mcp"], "sandbox") => Some(Named::Sandboxes),
        (["snapshot", ..], "id" | "ids") | (["sandbox" | "run", ..], "from_snapshot") => {
            Some(Named::Snapshots)
        }
        (["template", "get" | "prepare" | "delete"], "name" | "names")
        | (["sandbox" | "run", ..], "template") => Some(Named::Templates),
        (["volume", "get" | "resize" | "delete"], "name" | "names") => Some(Named::Volumes),
        (["context", "use" | "delete"], "name") | ([], "context") => Some(Named::Contexts),
        _ => None,
    }
}

/// A program's commands, with what their arguments are completed with.
fn completing(command: Command, path: &[String]) -> Command {
    let command = command.mut_args(|argument| match named(path, argument.get_id().as_str()) {
        Some(named) => argument.add(ArgValueCompleter::new(move |begun: &OsStr| offered(named, begun))),
        None => argument,
    });
    command.mut_subcommands(|sub| {
        let path: Vec<String> = path.iter().cloned().chain([sub.get_name().to_owned()]).collect();
        completing(sub, &path)
    })
}

/// Answers a shell that asks, and ends the program; otherwise does nothing.
pub(crate) fn answer(program: impl Fn() -> Command) {
    CompleteEnv::with_factory(|| completing(program(), &[])).var(VARIABLE).complete();
}

/// The script that makes a shell ask.
pub(crate) fn script(shell: Shell, program: &str) -> anyhow::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string()).context("this shell is not known")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, program, program, program, &mut script as &mut dyn Write)?;
    if shell.name() == "zsh" {
        // A file that zsh loads at the first Tab is also to answer it.
        write!(
            script,
            "\n\nif [ \"$funcstack[1]\" = \"_{program}\" ]; then\n    _clap_dynamic_completer_{program} \"$@\"\nfi\n"
        )?;
    }
    Ok(script)
}

fn offered(named: Named, begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let mut offers = match named {
        Named::Contexts => contexts(),
        of_server => {
            let connection = connection(std::env::args());
            ask(&connection, of_server, begun).unwrap_or_default()
        }
    };
    offers.retain(|offer| offer.word.starts_with(begun));
    offers.truncate(OFFERED_MAX);
    let candidate = |offer: Offer| {
        let about = Some(offer.about).filter(|about| !about.is_empty()).map(StyledStr::from);
        CompletionCandidate::new(offer.word).help(about)
    };
    let paths = match named {
        Named::Places => PathCompleter::any().complete(OsStr::new(begun)),
        _ => Vec::new(),
    };
    offers.into_iter().map(candidate).chain(paths).collect()
}

/// The server and context that the line names so far: what a shell hands over follows a `--`.
fn connection(words: impl Iterator<Item = String>) -> Connection {
    let mut connection = Connection::default();
    let mut words = words.skip_while(|word| word != "--").skip(1);
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let place = match option.as_str() {
            "--api" => &mut connection.api,
            "--context" => &mut connection.context,
            _ => continue,
        };
        *place = value.or_else(|| words.next());
    }
    connection
}

fn contexts() -> Vec<Offer> {
    let Ok(file) = ContextFile::read() else { return Vec::new() };
    file.contexts.into_iter().map(|(word, context)| Offer { word, about: context.api }).collect()
}

/// What the server knows, if it answers in time.
fn ask(connection: &Connection, named: Named, begun: &str) -> Option<Vec<Offer>> {
    let api = connection.api().ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let answered = runtime.block_on(async { tokio::time::timeout(TIMEOUT, known(&api, named, begun)).await });
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
    answered.ok()?
}

async fn known(api: &Api, named: Named, begun: &str) -> Option<Vec<Offer>> {
    let offer = |word: &str, about: String| Offer { word: word.to_owned(), about };
    Some(match named {
        Named::Sandboxes => {
            let found = api.list_sandboxes(&SandboxFilter::default()).await.ok()?;
            found.iter().flat_map(|one| sandbox_words(one, begun)).collect()
        }
        Named::Places => {
            let found = api.list_sandboxes(&SandboxFilter::default()).await.ok()?;
            let words = found.iter().flat_map(|one| sandbox_words(one, begun));
            words.map(|offer| Offer { word: format!("{}:", offer.word), ..offer }).collect()
        }
        Named::Snapshots => {
            let found = api.snapshots(None).await.ok()?;
            found.iter().map(|one| offer(&one.id, one.template.clone())).collect()
        }
        Named::Templates => {
            let found = api.templates().await.ok()?;
            found.iter().map(|one| offer(&one.name, one.status.clone())).collect()
        }
        Named::Volumes => {
            let found = api.volumes().await.ok()?;
            found.iter().map(|one| offer(&one.name, crate::table::size(one.size_bytes))).collect()
        }
        Named::Contexts => Vec::new(),
    })
}

/// How a sandbox may be named: by its name if it has one. Its id is offered beside that only to a person who began it.
fn sandbox_words(sandbox: &Sandbox, begun: &str) -> Vec<Offer> {
    let about = format!("{}, {}", sandbox.template, sandbox.status.word());
    let offer = |word: &String| Offer { word: word.clone(), about: about.clone() };
    let mut offers: Vec<Offer> = sandbox.name.iter().map(offer).collect();
    if offers.is_empty() || !begun.is_empty() {
        offers.push(offer(&sandbox.id));
    }
    offers
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::time::Instant;

    use clap::CommandFactory as _;
    use serde_json::json;

    use super::*;

    fn program() -> Command {
        completing(crate::Arguments::command(), &[])
    }

    fn words(line: &[&str]) -> Vec<String> {
        let arguments = line.iter().map(Into::into).collect();
        let found = clap_complete::engine::complete(&mut program(), arguments, line.len() - 1, None);
        found.unwrap().iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_and_options_are_completed() {
        assert_eq!(words(&["pandastack", "sandbox", "fork"]), ["fork", "fork-tree"]);
        assert!(words(&["pandastack", "sandbox", "create", "--netw"]).contains(&"--network".to_owned()));
        assert_eq!(words(&["pandastack", "sandbox", "create", "--network", "a"]), ["all"]);
    }

    #[test]
    fn whatever_names_a_sandbox_is_completed() {
        fn walk(command: &Command, path: &str, left: &mut Vec<String>) {
            for argument in command.get_arguments() {
                let name = argument.get_id().as_str();
                let of_server = matches!(name, "id" | "ids" | "sandbox" | "template" | "from_snapshot");
                if of_server && argument.get::<ArgValueCompleter>().is_none() {
                    left.push(format!("{path} {name}"));
                }
            }
            for sub in command.get_subcommands() {
                walk(sub, &format!("{path} {}", sub.get_name()), left);
            }
        }
        let mut left = Vec::new();
        walk(&program(), "", &mut left);
        // Those of this host are not the server's.
        left.retain(|one| !one.starts_with(" local ") && !one.starts_with(" help"));
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let script = String::from_utf8(script(shell, "pandastack").unwrap()).unwrap();
            assert!(script.contains(VARIABLE) && script.contains("pandastack"), "{shell}: {script}");
        }
    }

    #[test]
    fn the_line_says_which_server_is_asked() {
        let of = |line: &[&str]| {
            let found = connection(line.iter().map(|word| (*word).to_owned()));
            (found.api, found.context)
        };
        let given = |text: &str| Some(text.to_owned());
        assert_eq!(
            of(&["pandastack", "--", "pandastack", "--api", "http://a", "sandbox"]),
            (given("http://a"), None)
        );
        assert_eq!(of(&["pandastack", "--", "pandastack", "--context=work"]), (None, given("work")));
        assert_eq!(of(&["pandastack", "--api", "http://a"]), (None, None));
    }

    #[test]
    fn names_come_before_ids() {
        let sandbox = |name: Option<&str>| -> Sandbox {
            serde_json::from_value(json!({
                "id": "abcdefghijkl", "name": name, "template": "base", "cpu": 1, "memory_mb": 512,
                "status": "running", "boot_mode": "fork", "metadata": {}, "created_at": "1970-01-01T00:00:00.000Z",
                "persistent": false, "ttl_seconds": 1, "network": "none", "volumes": [], "env_names": [],
            }))
            .unwrap()
        };
        let words = |name, begun| -> Vec<String> {
            sandbox_words(&sandbox(name), begun).into_iter().map(|offer| offer.word).collect()
        };
        assert_eq!(words(Some("web"), ""), ["web"]);
        assert_eq!(words(Some("web"), "ab"), ["web", "abcdefghijkl"]);
        assert_eq!(words(None, ""), ["abcdefghijkl"]);
        assert_eq!(sandbox_words(&sandbox(None), "")[0].about, "base, running");
    }

    #[test]
    fn a_server_that_does_not_answer_costs_less_than_a_second() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let silent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until the client goes.
            stream.read_to_end(&mut Vec::new()).unwrap_or_default()
        });
        let api = crate::connection::api(&format!("http://{address}"), Some("pds_x".to_owned())).unwrap();
        let started = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answered = runtime
            .block_on(async { tokio::time::timeout(TIMEOUT, known(&api, Named::Sandboxes, "")).await });
        assert!(answered.is_err() && started.elapsed() < Duration::from_secs(5));
        drop((api, runtime));
        assert!(silent.join().unwrap() > 0, "it was asked");
    }
}

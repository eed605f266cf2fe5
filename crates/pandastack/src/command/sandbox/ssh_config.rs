//! What `ssh` has to be told to reach sandboxes: a block for each of them.

use std::path::Path;

use anyhow::Context;
use clap::Args;
use client::Api;
use contract::sandbox::{Sandbox, SandboxFilter};

use super::ssh_key::{SshFiles, read};
use crate::connection::{Connection, KEY_VARIABLE};
use crate::output::{Format, result, say};
use crate::quoting::quoted;
use crate::short_id::{length, short};

/// How the file begins.
const HEAD: &str = "# Made by `pandastack sandbox ssh-config --write`, which replaces it.\n";

/// Options of `ssh-config`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandboxes.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// All there are.
    #[arg(long)]
    all: bool,
    /// Write it to a file of this program's for `ssh` to include, instead of to standard output.
    #[arg(long)]
    write: bool,
}

/// The name that host keys of a sandbox are known by.
pub(super) fn alias(id: &str) -> String {
    format!("pandastack-{id}")
}

pub(super) async fn run(connection: &Connection, api: &Api, arguments: &Arguments) -> anyhow::Result<()> {
    let all = api.list_sandboxes(&SandboxFilter::default()).await?;
    let width = length(all.iter().map(|one| one.id.as_str()));
    let mut wanted = Vec::new();
    for id in &arguments.ids {
        wanted.push(api.sandbox(id).await?);
    }
    if arguments.all {
        wanted = all;
    }
    let files = SshFiles::open()?;
    let program = std::env::current_exe().context("find out where this program is")?;
    let proxy = proxy(&program, connection)?;
    let blocks: Vec<(String, String)> =
        wanted.iter().map(|one| (one.id.clone(), block(one, width, &proxy, &files))).collect();
    if !arguments.write {
        let text: Vec<&str> = blocks.iter().map(|(_, block)| block.as_str()).collect();
        return Ok(result(Format::Table, &(), || text.join("\n"))?);
    }
    // At once, so that the file that is named exists before `ssh` looks for it.
    files.public_key()?;
    let path = files.config();
    let before = if arguments.all { String::new() } else { read(&path)? };
    files.replace(&path, &merged(&before, &blocks))?;
    say(format!("{} is written; `ssh` reads it with this line at the top of ~/.ssh/config:", path.display()));
    Ok(result(Format::Table, &(), || format!("Include {}", config_word(&path.display().to_string())))?)
}

/// The command that relays a connection, as the shell of `ssh` reads it.
fn proxy(program: &Path, connection: &Connection) -> anyhow::Result<String> {
    let decided = connection.decided()?;
    let mut words = vec![quoted(&program.display().to_string())];
    match decided.context.filter(|_| decided.key_from == "context") {
        Some(context) => words.extend(["--context".to_owned(), quoted(&context)]),
        None => {
            words.extend(["--api".to_owned(), quoted(&decided.api)]);
            say(format!(
                "note: {KEY_VARIABLE} has to be set where `ssh` runs; `pandastack auth login` keeps a key instead"
            ));
        }
    }
    // What `ssh` would take for its own is written twice.
    let words: Vec<String> = words.into_iter().map(|word| word.replace('%', "%%")).collect();
    Ok(format!("{} sandbox ssh-proxy %h", words.join(" ")))
}

/// A path in a configuration of `ssh`.
fn config_word(path: &str) -> String {
    if path.contains(' ') { format!("\"{path}\"") } else { path.to_owned() }
}

fn block(sandbox: &Sandbox, width: usize, proxy: &str, files: &SshFiles) -> String {
    let by_name = sandbox.name.as_ref().map(|name| format!("pandastack-{name} "));
    let path = |path: std::path::PathBuf| config_word(&path.display().to_string().replace('%', "%%"));
    format!(
        "Host {}pandastack-{}\n  HostName {}\n  HostKeyAlias {}\n  User root\n  ProxyCommand {proxy}\n  \
         IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  StrictHostKeyChecking yes\n",
        by_name.unwrap_or_default(),
        short(&sandbox.id, width),
        sandbox.id,
        alias(&sandbox.id),
        path(files.key()),
        path(files.known_hosts()),
    )
}

/// The file with these blocks in place of earlier ones of the same sandboxes; those of others stay.
fn merged(before: &str, blocks: &[(String, String)]) -> String {
    let mut kept: Vec<String> = Vec::new();
    for line in before.lines() {
        match kept.last_mut() {
            _ if line.starts_with("Host ") => kept.push(format!("{line}\n")),
            Some(block) if !line.trim().is_empty() => block.push_str(&format!("{line}\n")),
            _ => {}
        }
    }
    let host_name = |id: &str| format!("  HostName {id}");
    kept.retain(|block| !blocks.iter().any(|(id, _)| block.lines().any(|line| line == host_name(id))));
    let all = kept.iter().map(String::as_str).chain(blocks.iter().map(|(_, block)| block.as_str()));
    all.fold(HEAD.to_owned(), |text, block| text + "\n" + block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_take_the_place_of_earlier_ones() {
        let block =
            |id: &str, name: &str| (id.to_owned(), format!("Host {name}\n  HostName {id}\n  User root\n"));
        let first = merged("", &[block("aaa", "one"), block("bbb", "two")]);
        assert_eq!(
            first,
            format!(
                "{HEAD}\nHost one\n  HostName aaa\n  User root\n\nHost two\n  HostName bbb\n  User root\n"
            )
        );
        let second = merged(&first, &[block("aaa", "renamed")]);
        assert_eq!(
            second,
            format!(
                "{HEAD}\nHost two\n  HostName bbb\n  User root\n\nHost renamed\n  HostName aaa\n  User root\n"
            )
        );
        assert_eq!(merged(&second, &[block("aaa", "renamed")]), second);
    }

    #[test]
    fn paths_are_words() {
        assert_eq!(config_word("/a/b"), "/a/b");
        assert_eq!(config_word("/a b"), "\"/a b\"");
        assert_eq!(alias("abc"), "pandastack-abc");
    }
}

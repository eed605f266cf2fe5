//! `pandastack fs`: files of a sandbox.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use client::{Api, Bytes, FileChanged, LinkFor, WatchEvent, upload_bytes, upload_stream};
use contract::file::FileEntry;
use futures::stream;

use crate::attached::read_stdin;
use crate::command::sandbox::cp;
use crate::connection::Connection;
use crate::duration::whole_seconds;
use crate::each::each;
use crate::guest_command::absolute;
use crate::output::{self, Format};
use crate::signals::Signals;
use crate::table::{plain, table};
use crate::transfer::Manner;

/// What to do with files.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What is in a directory.
    #[command(visible_alias = "list", after_help = "Example:\n  pandastack fs ls 0a1b2c3d /workspace")]
    Ls {
        /// The sandbox.
        id: String,
        /// The directory.
        #[arg(default_value = "/")]
        path: String,
        /// Only the names.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Write a file's contents to standard output.
    #[command(visible_alias = "read", after_help = "Example:\n  pandastack fs cat 0a1b2c3d /etc/os-release")]
    Cat {
        /// The sandbox.
        id: String,
        /// The file.
        path: String,
    },
    /// Write a file: from an argument, or from standard input.
    #[command(after_help = "Examples:\n  pandastack fs write 0a1b2c3d /workspace/note 'hello'\n  \
        pandastack fs write 0a1b2c3d /workspace/data.csv < data.csv")]
    Write {
        /// The sandbox.
        id: String,
        /// The file. Missing directories are made.
        path: String,
        /// What is in it [default: standard input].
        content: Option<String>,
    },
    /// Send a file or a directory.
    #[command(after_help = "Example:\n  pandastack fs upload 0a1b2c3d ./src /workspace/src")]
    Upload {
        /// The sandbox.
        id: String,
        /// The file or directory here.
        local: PathBuf,
        /// What it is called there.
        path: String,
    },
    /// Fetch a file or a directory.
    #[command(after_help = "Example:\n  pandastack fs download 0a1b2c3d /workspace/out ./out")]
    Download {
        /// The sandbox.
        id: String,
        /// The file or directory there.
        path: String,
        /// What it is called here.
        local: PathBuf,
    },
    /// Remove a file, or a directory with everything in it.
    #[command(visible_alias = "remove", after_help = "Example:\n  pandastack fs rm 0a1b2c3d /workspace/out")]
    Rm {
        /// The sandbox.
        id: String,
        /// The files and directories.
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Make a directory, with its parents.
    #[command(after_help = "Example:\n  pandastack fs mkdir 0a1b2c3d /workspace/a/b")]
    Mkdir {
        /// The sandbox.
        id: String,
        /// The directory.
        path: String,
    },
    /// Everything about a file but its contents.
    #[command(after_help = "Example:\n  pandastack fs stat 0a1b2c3d /etc/passwd")]
    Stat {
        /// The sandbox.
        id: String,
        /// The file or directory.
        path: String,
    },
    /// Move a file or a directory.
    #[command(visible_alias = "rename", after_help = "Example:\n  pandastack fs mv 0a1b2c3d /tmp/a /tmp/b")]
    Mv {
        /// The sandbox.
        id: String,
        /// Where it is.
        path: String,
        /// Where it goes.
        to: String,
    },
    /// Make a link to a file that works without a key: for reading it, or with --write for writing it.
    #[command(after_help = "Examples:\n  curl -O $(pandastack fs url 0a1b2c3d report.pdf)\n  \
        curl -T data.csv $(pandastack fs url 0a1b2c3d /workspace/data.csv --write --expires 10m)")]
    Url {
        /// The sandbox.
        id: String,
        /// The file.
        path: String,
        /// A link for writing it, with PUT.
        #[arg(long)]
        write: bool,
        /// Time until the link stops working, such as 600 or 12h [default: an hour].
        #[arg(long, value_name = "TIME", value_parser = whole_seconds, allow_negative_numbers = true)]
        expires: Option<i64>,
    },
    /// Tell what changes in a directory or about a file, until Ctrl-C; with `--output json` a line of JSON for each change.
    #[command(after_help = "Example:\n  pandastack fs watch 0a1b2c3d /workspace --recursive")]
    Watch {
        /// The sandbox.
        id: String,
        /// The directory or file.
        path: String,
        /// Everything below it too.
        #[arg(long, short)]
        recursive: bool,
    },
    /// Change who may do what with a file.
    #[command(after_help = "Example:\n  pandastack fs chmod 0a1b2c3d 0755 /workspace/run.sh")]
    Chmod {
        /// The sandbox.
        id: String,
        /// Permission bits in octal.
        mode: String,
        /// The file or directory.
        path: String,
    },
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    let there = async |id: &str, path: &str| absolute(&api, id, path).await;
    match command {
        Command::Ls { id, path, quiet } => {
            let path = there(&id, &path).await?;
            let listing = api.list_directory(&id, &path).await?;
            match quiet {
                true => output::names(format, &listing.entries, |one| plain(&one.name))?,
                false => output::result(format, &listing, || list(&listing.entries))?,
            }
            if listing.truncated {
                output::say("note: there is more than the server lists");
            }
        }
        Command::Cat { id, path } => cat(&api, &id, &there(&id, &path).await?).await?,
        Command::Write { id, path, content } => {
            let body = match content {
                Some(content) => upload_bytes(content),
                None => upload_stream(stream::unfold(read_stdin(), |mut pieces| async {
                    pieces.recv().await.map(|piece| (Ok(Bytes::from(piece)), pieces))
                })),
            };
            let written = api.write_file(&id, &there(&id, &path).await?, body).await?;
            output::result(format, &written, String::new)?;
        }
        Command::Upload { id, local, path } => cp::send(&api, &id, &local, &path, Manner::default()).await?,
        Command::Download { id, path, local } => {
            cp::fetch(&api, &id, &path, &local, Manner::default()).await?
        }
        Command::Rm { id, paths } => {
            let mut absolute = Vec::new();
            for path in &paths {
                absolute.push(there(&id, path).await?);
            }
            each("files", &absolute, async |path| api.remove_file(&id, path).await).await?;
        }
        Command::Mkdir { id, path } => api.make_directory(&id, &there(&id, &path).await?).await?,
        Command::Stat { id, path } => {
            output::object(format, &api.stat_file(&id, &there(&id, &path).await?).await?)?;
        }
        Command::Mv { id, path, to } => {
            api.move_file(&id, &there(&id, &path).await?, &there(&id, &to).await?).await?;
        }
        Command::Chmod { id, mode, path } => {
            api.set_mode(&id, &there(&id, &path).await?, &mode).await?;
        }
        Command::Url { id, path, write, expires } => {
            let operation = if write { LinkFor::Write } else { LinkFor::Read };
            let link = api.link_file(&id, &there(&id, &path).await?, operation, expires).await?;
            output::result(format, &link, || link.url.clone())?;
        }
        Command::Watch { id, path, recursive } => {
            let path = there(&id, &path).await?;
            let mut signals = Signals::watch()?;
            return tokio::select! {
                watched = watch(&api, &id, &path, recursive, format) => watched.map(|()| ExitCode::SUCCESS),
                told = signals.next() => Ok(ExitCode::from(told.exit_code())),
            };
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a line for each change.
async fn watch(api: &Api, id: &str, path: &str, recursive: bool, format: Format) -> anyhow::Result<()> {
    let mut watch = api.watch_files(id, path, recursive).await?;
    while let Some(event) = watch.next().await? {
        let change = match event {
            WatchEvent::Changed(change) => change,
            WatchEvent::Ready => {
                output::say(format!("watching {path}"));
                continue;
            }
            WatchEvent::Overflow => {
                output::say("note: more changed than could be told");
                continue;
            }
        };
        let line = match format {
            Format::Json => serde_json::to_string(&change)?,
            Format::Table => changed(&change),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}")?;
        stdout.flush()?;
    }
    bail!("the server ended the watch")
}

/// A change as a line for people.
fn changed(change: &FileChanged) -> String {
    let mark = if change.is_dir { "/" } else { "" };
    let line = format!("{:<8} {}{mark}", plain(&change.kind), plain(&change.path));
    match &change.to {
        Some(to) => format!("{line} -> {}{mark}", plain(to)),
        None => line,
    }
}

async fn cat(api: &Api, id: &str, path: &str) -> anyhow::Result<()> {
    let mut file = api.read_file(id, path).await?;
    while let Some(piece) = file.next().await.with_context(|| format!("read {path}"))? {
        // Nothing else runs here, so waiting for whoever reads is all there is to do.
        tokio::task::block_in_place(|| io::stdout().write_all(&piece))?;
    }
    io::stdout().flush()?;
    Ok(())
}

fn list(entries: &[FileEntry]) -> String {
    let row = |entry: &FileEntry| {
        let changed = contract::time::rfc3339(entry.mtime.saturating_mul(1000));
        let name = match &entry.link_target {
            Some(target) => format!("{} -> {target}", entry.name),
            None => entry.name.clone(),
        };
        [entry.mode.clone(), entry.size.to_string(), changed, name]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    table(["MODE", "SIZE", "CHANGED", "NAME"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_lines() {
        let change = |kind: &str, is_dir, to: Option<&str>| {
            let (path, kind, to) = ("/a".to_owned(), kind.to_owned(), to.map(str::to_owned));
            changed(&FileChanged { path, kind, is_dir, to })
        };
        assert_eq!(change("created", false, None), "created  /a");
        assert_eq!(change("moved", true, Some("/b\n")), "moved    /a/ -> /b /");
    }
}

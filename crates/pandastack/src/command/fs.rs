//! `pandastack fs`: files of a sandbox.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use client::{Api, Bytes, upload_bytes, upload_stream};
use contract::file::FileEntry;
use futures::stream;

use crate::attached::read_stdin;
use crate::command::sandbox::cp;
use crate::connection::Connection;
use crate::each::each;
use crate::output::{self, Format};
use crate::table::table;

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
    match command {
        Command::Ls { id, path } => {
            let listing = api.list_directory(&id, &path).await?;
            output::result(format, &listing, || list(&listing.entries))?;
            if listing.truncated {
                output::say("note: there is more than the server lists");
            }
        }
        Command::Cat { id, path } => cat(&api, &id, &path).await?,
        Command::Write { id, path, content } => {
            let body = match content {
                Some(content) => upload_bytes(content),
                None => upload_stream(stream::unfold(read_stdin(), |mut pieces| async {
                    pieces.recv().await.map(|piece| (Ok(Bytes::from(piece)), pieces))
                })),
            };
            let written = api.write_file(&id, &path, body).await?;
            output::result(format, &written, String::new)?;
        }
        Command::Upload { id, local, path } => cp::send(&api, &id, &local, &path).await?,
        Command::Download { id, path, local } => cp::fetch(&api, &id, &path, &local).await?,
        Command::Rm { id, paths } => {
            each("files", &paths, async |path| api.remove_file(&id, path).await).await?;
        }
        Command::Mkdir { id, path } => api.make_directory(&id, &path).await?,
        Command::Stat { id, path } => output::object(format, &api.stat_file(&id, &path).await?)?,
        Command::Mv { id, path, to } => api.move_file(&id, &path, &to).await?,
        Command::Chmod { id, mode, path } => api.set_mode(&id, &path, &mode).await?,
    }
    Ok(ExitCode::SUCCESS)
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

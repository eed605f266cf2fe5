//! A program of one language that follows a document block by block.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tests::published::output;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::guides::clients::Clients;
use crate::guides::language::{Language, mark};

/// How long one block may take; guests may be emulated and the host busy.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a program may take to end after its last block, and a compiler to compile.
const END_TIMEOUT: Duration = Duration::from_secs(120);
/// Most that a block may write.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A program that waits for its turn.
pub(crate) struct Follower {
    child: Child,
    turns: ChildStdin,
    said: ChildStdout,
    /// What was read and not looked at yet.
    rest: Vec<u8>,
}

impl Follower {
    /// Starts the program of a language in a directory. What it complains of is shown with the test's own output.
    pub(crate) async fn start(
        language: Language,
        program: &str,
        directory: &Path,
        clients: &Clients,
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let file = directory.join(language.file());
        std::fs::write(&file, program)?;
        let mut command = match language {
            Language::Shell => Command::new("bash"),
            Language::Python => Command::new(clients.python.join("python")),
            Language::TypeScript => {
                clients.furnish(directory)?;
                let mut compiler = Command::new("node");
                compiler.arg(clients.typescript.join("node_modules/typescript/bin/tsc"));
                output(compiler.current_dir(directory), END_TIMEOUT).await?;
                Command::new("node")
            }
        };
        let started = if language == Language::TypeScript { file.with_extension("mjs") } else { file };
        command.arg(started).current_dir(directory).env_clear().kill_on_drop(true);
        for (name, value) in environment {
            command.env(name, value);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let turns = child.stdin.take().context("it has no standard input")?;
        let said = child.stdout.take().context("it has no standard output")?;
        Ok(Self { child, turns, said, rest: Vec::new() })
    }

    /// Has it run its next block, which has that number; what it wrote.
    pub(crate) async fn turn(&mut self, number: usize) -> Result<String> {
        self.turns.write_all(b"\n").await.context("the program has ended")?;
        let mark = mark(number).into_bytes();
        let read = tokio::time::timeout(BLOCK_TIMEOUT, async {
            let mut piece = vec![0; 64 << 10];
            loop {
                if let Some(at) = self.rest.windows(mark.len()).position(|window| window == mark) {
                    let said = String::from_utf8_lossy(&self.rest[..at]).into_owned();
                    self.rest.drain(..at + mark.len());
                    return Ok(said);
                }
                let length = self.said.read(&mut piece).await?;
                self.rest.extend_from_slice(&piece[..length]);
                ensure!(self.rest.len() <= OUTPUT_BYTES_MAX, "it writes too much");
                if length == 0 {
                    bail!("it failed: {}", String::from_utf8_lossy(&self.rest));
                }
            }
        });
        read.await.context("it does not end")?
    }

    /// Lets it end.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.turns);
        let ended = tokio::time::timeout(END_TIMEOUT, self.child.wait()).await;
        let status = ended.context("it does not end after its last block")??;
        ensure!(status.success(), "it ended with {status} after its last block");
        Ok(())
    }
}

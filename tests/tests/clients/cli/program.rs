//! The program, run as a person would: with an environment of its own and nothing of the tester's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::api::KEY;
use tests::program;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long one command may take; guests may be emulated and the host busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The program, a home of its own, and the server it speaks to.
pub(crate) struct Cli {
    home: PathBuf,
    api: Option<String>,
    key: Option<String>,
    authority: Option<PathBuf>,
}

/// How a command went.
#[derive(Debug)]
pub(crate) struct Went {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) bytes: Vec<u8>,
}

impl Cli {
    /// With the first tenant's key in its environment.
    pub(crate) fn new(api: impl ToString) -> Result<Self> {
        let mut cli = Self::bare()?;
        cli.api = Some(format!("http://{}", api.to_string()));
        cli.key = Some(KEY.to_owned());
        Ok(cli)
    }

    /// With nothing in its environment.
    pub(crate) fn bare() -> Result<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("pandastack-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&home)?;
        Ok(Self { home, api: None, key: None, authority: None })
    }

    /// A directory that goes with this.
    pub(crate) fn home(&self) -> &PathBuf {
        &self.home
    }

    /// The same with another key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// The same with another address of the server.
    pub(crate) fn at(mut self, api: &str) -> Self {
        self.api = Some(api.to_owned());
        self
    }

    /// The same, with this CA and no other to trust.
    pub(crate) fn trusting(mut self, authority: &Path) -> Self {
        self.authority = Some(authority.to_owned());
        self
    }

    /// A command line, not started; in this program's home.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        let program = tokio::task::block_in_place(program::path)?;
        let mut command = Command::new(program);
        command.args(words);
        self.furnish(&mut command);
        Ok(command)
    }

    /// Gives a command this environment.
    pub(crate) fn furnish(&self, command: &mut Command) {
        command.env_clear().env("HOME", &self.home).env("PATH", "/usr/bin:/bin").env("TERM", "xterm");
        command.current_dir(&self.home).kill_on_drop(true);
        if let Some(api) = &self.api {
            command.env("PANDASTACK_API", api);
        }
        if let Some(key) = &self.key {
            command.env("PANDASTACK_API_KEY", key);
        }
        if let Some(authority) = &self.authority {
            command.env("SSL_CERT_FILE", authority);
        }
    }

    /// Runs to the end, with `input` piped in.
    pub(crate) async fn with_input(&self, words: &[&str], input: &[u8]) -> Result<Went> {
        let mut command = self.command(words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start the program")?;
        let mut stdin = child.stdin.take().context("it has no standard input")?;
        let input = input.to_vec();
        let writing = tokio::spawn(async move {
            // A command that ends without reading it all is fine.
            drop(stdin.write_all(&input).await);
        });
        let ended = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
        writing.abort();
        went(ended.with_context(|| format!("{words:?} does not end"))??)
    }

    /// Runs to the end, with nothing to read.
    pub(crate) async fn run(&self, words: &[&str]) -> Result<Went> {
        let mut command = self.command(words)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = tokio::time::timeout(TIMEOUT, command.output()).await;
        went(ended.with_context(|| format!("{words:?} does not end"))??)
    }

    /// What a command that goes well writes, without the end of its last line.
    pub(crate) async fn ok(&self, words: &[&str]) -> Result<String> {
        let went = self.run(words).await?;
        ensure!(went.code == 0, "{words:?}: {went:?}");
        Ok(went.stdout.trim_end_matches('\n').to_owned())
    }

    /// The JSON that a command that goes well writes.
    pub(crate) async fn json(&self, words: &[&str]) -> Result<Value> {
        let words = [&["--output", "json"], words].concat();
        let said = self.ok(&words).await?;
        serde_json::from_str(&said).with_context(|| format!("{words:?} wrote {said}"))
    }

    /// What bash is offered for the last of these words: names, without what they are.
    pub(crate) async fn offered(&self, words: &[&str]) -> Result<Vec<String>> {
        let mut command = self.command(&[&["--", "pandastack"], words].concat())?;
        command.env("PANDASTACK_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let went = went(tokio::time::timeout(TIMEOUT, command.output()).await.context("no end")??)?;
        ensure!(went.code == 0 && went.stderr.is_empty(), "{words:?}: {went:?}");
        Ok(went.stdout.lines().map(|line| line.trim_end().to_owned()).collect())
    }

    /// What a command that fails says.
    pub(crate) async fn fails(&self, code: i32, words: &[&str]) -> Result<String> {
        let went = self.run(words).await?;
        ensure!(went.code == code, "{words:?} was to end with {code}: {went:?}");
        ensure!(went.stdout.is_empty(), "{words:?} wrote to standard output: {went:?}");
        Ok(went.stderr)
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.home));
    }
}

fn went(output: Output) -> Result<Went> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Went {
        code: output.status.code().with_context(|| format!("it was killed: {output:?}"))?,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        bytes: output.stdout,
    })
}

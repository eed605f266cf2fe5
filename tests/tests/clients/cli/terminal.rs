//! `sandbox ssh` under a real terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tests::program;
use tests::{in_api, wait};
use tokio::process::{Child, Command};

use crate::cli::exec::gone;
use crate::cli::program::{Cli, TIMEOUT};

/// A terminal with the program in it.
pub(crate) struct Terminal {
    ours: File,
    theirs: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    fn start(cli: &Cli, words: &[&str]) -> Result<Self> {
        Self::start_with(cli, words, (30, 90))
    }

    /// Starts the program in a terminal with so many lines and characters in each.
    pub(crate) fn start_with(cli: &Cli, words: &[&str], (rows, columns): (u16, u16)) -> Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?.into_string()?;
        let theirs: OwnedFd = File::options().read(true).write(true).open(name)?.into();
        tcsetwinsize(&ours, size(rows, columns))?;
        // In a session of its own, with this as its terminal.
        let mut command = Command::new("/usr/bin/setsid");
        command.arg("--ctty").arg(tokio::task::block_in_place(program::path)?).args(words);
        cli.furnish(&mut command);
        let stream = || Ok::<_, anyhow::Error>(Stdio::from(theirs.try_clone()?));
        command.stdin(stream()?).stdout(stream()?).stderr(stream()?);
        let child = command.spawn().context("start the program")?;
        let ours = File::from(ours);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, kept) = (ours.try_clone()?, shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..read]);
            }
        });
        Ok(Self { ours, theirs, shown, child })
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    pub(crate) fn type_in(&mut self, text: &str) -> Result<()> {
        Ok(self.ours.write_all(text.as_bytes())?)
    }

    async fn shows(&self, text: &str) -> Result<()> {
        let shown = wait::until("the terminal shows it", TIMEOUT, || self.shown().contains(text)).await;
        shown.with_context(|| format!("{text:?} is not in {:?}", self.shown()))
    }

    /// Whether keys come one by one.
    fn is_raw(&self) -> Result<bool> {
        let modes = tcgetattr(&self.theirs)?.local_modes;
        Ok(!modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG))
    }

    pub(crate) async fn until_raw(&self) -> Result<()> {
        wait::until("the terminal is raw", TIMEOUT, || self.is_raw().unwrap_or(false)).await
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(self.child.id().context("it has ended")? as i32).context("no process")
    }

    pub(crate) async fn code(&mut self) -> Result<Option<i32>> {
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        Ok(ended.with_context(|| format!("it does not end; it shows {:?}", self.shown()))??.code())
    }
}

#[test]
fn a_terminal_has_a_size_takes_keys_and_ends_with_a_code() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let mut terminal = Terminal::start(&cli, &["sandbox", "ssh", &id])?;
        let before = tcgetattr(&terminal.theirs)?;
        terminal.until_raw().await?;
        terminal.type_in("stty size; echo $TERM; tty\n")?;
        terminal.shows("30 90\r\n").await?;
        terminal.shows("xterm\r\n").await?;
        terminal.shows("/dev/pts/").await?;
        tcsetwinsize(&terminal.ours, size(40, 100))?;
        terminal.type_in("until stty size | grep -q '40 100'; do sleep 0.1; done; echo re''sized\n")?;
        terminal.shows("resized\r\n").await?;
        // Ctrl-C is a key for the guest, not for the program here. What begins is the terminal's foreground when it says so.
        terminal.type_in("sh -c 'echo begin\"\"s; exec sleep 600'\n")?;
        terminal.shows("begins\r\n").await?;
        terminal.type_in("\u{3}")?;
        terminal.type_in("echo after''wards; exit 7\n")?;
        terminal.shows("afterwards\r\n").await?;
        ensure!(terminal.code().await? == Some(7), "{}", terminal.shown());
        let after = tcgetattr(&terminal.theirs)?;
        ensure!(
            after.local_modes == before.local_modes && !terminal.is_raw()?,
            "the terminal is not as it was"
        );
        api.remove(&id).await
    })
}

#[test]
fn the_terminal_is_put_back_when_the_program_is_told_to_end() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let mut terminal = Terminal::start(&cli, &["sandbox", "ssh", &id])?;
            terminal.until_raw().await?;
            terminal.type_in("echo $$ > /tmp/pid; echo is''there\n")?;
            terminal.shows("isthere\r\n").await?;
            kill_process(terminal.pid()?, signal)?;
            ensure!(terminal.code().await? == Some(code), "{}", terminal.shown());
            ensure!(!terminal.is_raw()?, "the terminal is still raw");
            // The shell there was hung up.
            gone(api, &id, "/tmp/pid").await?;
        }
        // A sandbox that goes away ends it too, and leaves the terminal usable.
        let mut terminal = Terminal::start(&cli, &["sandbox", "ssh", &id])?;
        terminal.until_raw().await?;
        terminal.type_in("echo is''there\n")?;
        terminal.shows("isthere\r\n").await?;
        api.remove(&id).await?;
        ensure!(terminal.code().await?.is_some_and(|code| code != 0), "{}", terminal.shown());
        ensure!(!terminal.is_raw()?, "the terminal is still raw");
        Ok(())
    })
}

#[test]
fn ctrl_c_at_a_terminal_reaches_the_command() -> Result<()> {
    in_api(async |api| {
        let cli = Cli::new(api.address())?;
        let id = api.create().await?;
        let line = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done";
        let mut terminal = Terminal::start(&cli, &["sandbox", "exec", &id, line])?;
        terminal.shows("ready\r\n").await?;
        terminal.type_in("\u{3}")?;
        terminal.shows("caught\r\n").await?;
        ensure!(terminal.code().await? == Some(7), "{}", terminal.shown());
        api.remove(&id).await
    })
}

//! The terminal this program runs in: its size, every key as it is pressed, and back to how it was whatever happens.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};

use anyhow::{Context, bail};
use client::TerminalSize;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// How the terminal was before it was changed, for whoever has to change it back.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// While this lives, keys come one by one and nothing is echoed. Dropping it, and a panic, put the terminal back.
pub(crate) struct Raw(());

impl Raw {
    /// Changes the terminal.
    pub(crate) fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin()).context("ask the terminal how it is set")?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                hook(panic);
            }));
        });
        let raw = tcsetattr(io::stdin(), OptionalActions::Flush, &raw).map(|()| Self(()));
        raw.context("change the terminal").inspect_err(|_| restore())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Its size; the usual one where it has none.
pub(crate) fn size() -> TerminalSize {
    let found = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin())).ok();
    let found = found.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    found.map_or(TerminalSize { rows: 24, cols: 80 }, |size| TerminalSize {
        rows: size.ws_row,
        cols: size.ws_col,
    })
}

/// Columns of the terminal that standard error is; the usual number where it has none.
pub(crate) fn columns() -> usize {
    let found = tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_col > 0);
    found.map_or(80, |size| usize::from(size.ws_col))
}

/// Asks for a yes on the terminal.
pub(crate) fn agreed(question: &str) -> anyhow::Result<bool> {
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("read the terminal")?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Asks for a secret: from the terminal without showing it, or one line of standard input.
pub(crate) fn secret(question: &str) -> anyhow::Result<String> {
    let mut line = String::new();
    if !io::stdin().is_terminal() {
        io::stdin().lock().read_line(&mut line).context("read standard input")?;
    } else {
        let mut terminal =
            File::options().read(true).write(true).open("/dev/tty").context("open the terminal")?;
        let before = tcgetattr(&terminal).context("ask the terminal how it is set")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        write!(terminal, "{question}: ")?;
        tcsetattr(&terminal, OptionalActions::Flush, &silent).context("change the terminal")?;
        let read = io::BufReader::new(&terminal).read_line(&mut line);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
        read.context("read the terminal")?;
    }
    let secret = line.trim().to_owned();
    if secret.is_empty() {
        bail!("no key was given");
    }
    Ok(secret)
}

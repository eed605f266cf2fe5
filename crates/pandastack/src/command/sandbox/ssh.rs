//! A terminal in a sandbox: keys go there as they are pressed, and what it draws is drawn here.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use client::{Api, TerminalEvent};
use tokio::signal::unix::{SignalKind, signal};

use crate::attached::read_stdin;
use crate::local_terminal::{self, Raw};
use crate::output::say;
use crate::signals::{Signals, Told};

/// Ctrl-C and Ctrl-D as keys.
const INTERRUPT: u8 = 3;
const END_OF_FILE: u8 = 4;

/// Options of `ssh`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The sandbox.
    id: String,
    /// Working directory [default: the user's home].
    #[arg(long, short = 'w', value_name = "PATH")]
    cwd: Option<String>,
}

pub(super) async fn run(api: &Api, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    let mut signals = Signals::watch()?;
    let mut resized = signal(SignalKind::window_change()).context("watch for changes of the window")?;
    let cwd = arguments.cwd.as_deref();
    let opened = api.terminal(&arguments.id, local_terminal::size(), term.as_deref(), cwd).await;
    let (mut input, mut output) = opened?;
    // Without a terminal here it is still one there: what is piped in is typed.
    let raw = io::stdin().is_terminal().then(Raw::enter).transpose()?;
    let mut keys = Some(read_stdin());
    let ended = loop {
        tokio::select! {
            event = output.next() => match event {
                Ok(TerminalEvent::Output(bytes)) => {
                    // Whoever looks at a terminal looks at all of it, so waiting for it is right.
                    let written = tokio::task::block_in_place(|| {
                        let mut stdout = io::stdout().lock();
                        stdout.write_all(&bytes).and_then(|()| stdout.flush())
                    });
                    if let Err(error) = written {
                        break Err(anyhow::Error::new(error));
                    }
                }
                Ok(TerminalEvent::Exited(code)) => break Ok(code),
                Err(error) => break Err(error.into()),
            },
            pressed = async {
                match &mut keys {
                    Some(keys) => keys.recv().await,
                    None => std::future::pending().await,
                }
            } => match pressed {
                Some(bytes) => {
                    if let Err(error) = input.write(bytes).await {
                        break Err(error.into());
                    }
                }
                None => {
                    keys = None;
                    // What is piped in ends as somebody at a terminal would end it.
                    if raw.is_none() {
                        let _ = input.write(vec![END_OF_FILE]).await;
                    }
                }
            },
            Some(()) = resized.recv() => {
                if let Err(error) = input.resize(local_terminal::size()).await {
                    break Err(error.into());
                }
            }
            told = signals.next() => match told {
                // In raw mode keys make none of these: they were sent to us, and to the shell they go as keys.
                Told::Interrupt => {
                    if let Err(error) = input.write(vec![INTERRUPT]).await {
                        break Err(error.into());
                    }
                }
                Told::Quit => {}
                Told::Terminate | Told::HangUp => break Ok(i32::from(told.exit_code())),
            },
        }
    };
    if raw.is_some() && ended.is_err() {
        // The prompt of the guest has not ended its line.
        say("\r");
    }
    drop(raw);
    Ok(ExitCode::from(u8::try_from(ended?).unwrap_or(255)))
}

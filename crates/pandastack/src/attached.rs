//! A command in a sandbox as if it ran here: its output on this program's, this program's input and signals on it.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use client::{Api, Command, ExecEvent, ExecInput};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::hints;
use crate::output::say;
use crate::signals::{Signals, Told};

/// Size of a piece of input.
const PIECE_BYTES: usize = 32 << 10;
/// Pieces of input on their way at once; the server takes twice as many.
const PIECES_ON_THEIR_WAY: usize = 8;
/// Pieces of output that wait for whoever reads ours; then the command waits.
const PIECES_WAITING: usize = 1024;
/// How long a command that was told to end may take, before it is left to the server, which kills it.
const LEAVE_TO_END: Duration = Duration::from_secs(5);
/// How often a person may press Ctrl-C until the command is left.
const INTERRUPTS_MAX: u32 = 3;
/// The exit code of a program whose reader has gone.
const READER_GONE: i32 = 141;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// As an exit code.
    pub(crate) code: i32,
    /// What may help, where the server knows why it failed.
    pub(crate) hint: Option<String>,
}

impl Ended {
    /// One that the server says nothing about.
    pub(crate) const fn with(code: i32) -> Self {
        Self { code, hint: None }
    }

    /// By a signal for this program.
    pub(crate) fn by(told: Told) -> Self {
        Self::with(i32::from(told.exit_code()))
    }

    /// As this program's own.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::try_from(self.code).unwrap_or(255))
    }
}

/// Where output goes.
pub(crate) enum Sink {
    /// To this program's standard output and error.
    Own,
    /// Kept, for a result in JSON.
    Kept(Kept),
}

/// Output that was kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Whether a command reads what this program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// When it is a pipe or a file.
    WhenPiped,
    /// Also when it is a terminal.
    Always,
    /// Never.
    Never,
}

impl Stdin {
    fn is_read(self) -> bool {
        match self {
            Self::WhenPiped => !io::stdin().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn run(
    api: &Api,
    sandbox: &str,
    mut command: Command,
    stdin: Stdin,
    signals: &mut Signals,
    sink: &mut Sink,
) -> anyhow::Result<Ended> {
    command.open_stdin = stdin.is_read();
    let writer = matches!(sink, Sink::Own).then(Writer::start);
    let ended = attend(api, sandbox, &command, signals, sink, writer.as_ref()).await;
    // What it wrote is shown before what went wrong.
    let written = match writer {
        Some(writer) => writer.finish().await,
        None => Ok(()),
    };
    let ended = ended?;
    written?;
    if let (Sink::Own, Some(hint)) = (&*sink, &ended.hint) {
        say(format!("hint: {}", hints::translated(hint)));
    }
    Ok(ended)
}

async fn attend(
    api: &Api,
    sandbox: &str,
    command: &Command,
    signals: &mut Signals,
    sink: &mut Sink,
    writer: Option<&Writer>,
) -> anyhow::Result<Ended> {
    let (mut input, mut output) = api.exec(sandbox, command).await?;
    let mut pieces = command.open_stdin.then(read_stdin);
    let (mut on_their_way, mut interrupts) = (0, 0);
    let mut deadline: Option<(tokio::time::Instant, Told)> = None;
    loop {
        tokio::select! {
            event = output.next() => match event? {
                ExecEvent::Stdout(bytes) => {
                    if !put(sink, writer, Stream::Out, bytes).await {
                        return Ok(Ended::with(READER_GONE));
                    }
                }
                ExecEvent::Stderr(bytes) => {
                    put(sink, writer, Stream::Error, bytes).await;
                }
                ExecEvent::Taken => on_their_way -= 1,
                ExecEvent::Deaf => pieces = None,
                ExecEvent::Exited { code, hint } => return Ok(Ended { code, hint }),
            },
            piece = next(&mut pieces), if on_their_way < PIECES_ON_THEIR_WAY => {
                if pass_on(&mut input, piece).await? {
                    on_their_way += 1;
                } else {
                    pieces = None;
                }
            }
            told = signals.next() => {
                input.signal(told.name()).await?;
                interrupts += u32::from(told == Told::Interrupt);
                if interrupts >= INTERRUPTS_MAX {
                    return Ok(Ended::by(told));
                }
                if told != Told::Interrupt && deadline.is_none() {
                    deadline = Some((tokio::time::Instant::now() + LEAVE_TO_END, told));
                }
            }
            told = passed(deadline) => return Ok(Ended::by(told)),
        }
    }
}

async fn passed(deadline: Option<(tokio::time::Instant, Told)>) -> Told {
    match deadline {
        Some((at, told)) => {
            tokio::time::sleep_until(at).await;
            told
        }
        None => std::future::pending().await,
    }
}

async fn next(pieces: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match pieces {
        Some(pieces) => pieces.recv().await,
        None => std::future::pending().await,
    }
}

/// Sends a piece of input, or its end; whether there may be more.
async fn pass_on(input: &mut ExecInput, piece: Option<Vec<u8>>) -> anyhow::Result<bool> {
    match piece {
        Some(piece) => input.write(&piece).await?,
        None => {
            input.end().await?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// This program's input, read by a thread that nobody waits for: a terminal may never say anything.
pub(crate) fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, pieces) = mpsc::channel(2);
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match io::stdin().read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) if read > 0 => {
                    if sender.blocking_send(buffer[..read].to_vec()).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    });
    pieces
}

/// Which of this program's streams.
enum Stream {
    Out,
    Error,
}

/// Passes output on; false when nobody reads it any more.
async fn put(sink: &mut Sink, writer: Option<&Writer>, stream: Stream, bytes: Vec<u8>) -> bool {
    match (sink, writer) {
        (Sink::Kept(kept), _) => {
            match stream {
                Stream::Out => kept.stdout.extend(bytes),
                Stream::Error => kept.stderr.extend(bytes),
            }
            true
        }
        (Sink::Own, Some(writer)) => writer.pieces.send((stream, bytes)).await.is_ok(),
        (Sink::Own, None) => false,
    }
}

/// Writes to this program's streams without holding up the connection, whose pings must be answered.
struct Writer {
    pieces: mpsc::Sender<(Stream, Vec<u8>)>,
    writing: JoinHandle<io::Result<()>>,
}

impl Writer {
    fn start() -> Self {
        let (pieces, mut waiting) = mpsc::channel::<(Stream, Vec<u8>)>(PIECES_WAITING);
        let writing = tokio::task::spawn_blocking(move || {
            while let Some((stream, bytes)) = waiting.blocking_recv() {
                match stream {
                    Stream::Out => {
                        let mut stdout = io::stdout().lock();
                        stdout.write_all(&bytes)?;
                        stdout.flush()?;
                    }
                    // Nobody is left to tell when standard error is gone.
                    Stream::Error => drop(io::stderr().write_all(&bytes)),
                }
            }
            Ok(())
        });
        Self { pieces, writing }
    }

    async fn finish(self) -> anyhow::Result<()> {
        drop(self.pieces);
        match self.writing.await.context("write output")? {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("write output"),
            _ => Ok(()),
        }
    }
}

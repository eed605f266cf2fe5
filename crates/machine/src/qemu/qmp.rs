//! The small part of QEMU's control protocol that we speak.
//!
//! What comes back is untrusted: a guest may have taken over its QEMU. Lines are capped, events dropped, answers waited for with
//! a deadline.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use crate::engine::ControlError;
use crate::on_demand;

/// Longest line we accept; the largest honest answer is a console tail.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long a QEMU that has all of its memory may take for an ordinary command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A control connection. Commands are answered one at a time.
#[derive(Debug)]
pub(super) struct Qmp {
    exchange: Mutex<Exchange>,
    reader: JoinHandle<()>,
    /// How long QEMU may take for an ordinary command.
    patience: Duration,
}

#[derive(Debug)]
struct Exchange {
    writer: tokio::net::unix::OwnedWriteHalf,
    answers: mpsc::Receiver<Value>,
    /// Number of the next command; its answer has it too, so that one that came too late is not taken for another's.
    next: u64,
    /// A command was sent in part, so nothing after it would be understood.
    out_of_step: bool,
}

impl Drop for Qmp {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Qmp {
    /// Connects, waits for QEMU's greeting and enters command mode. A QEMU whose memory comes on demand may wait for that at any time.
    pub(super) async fn connect(
        directory: &File,
        name: &str,
        patience: Duration,
        is_on_demand: bool,
    ) -> Result<Self, ControlError> {
        let ordinary = on_demand::patience(is_on_demand, TIMEOUT);
        let patience = patience.max(ordinary);
        let stream = connect_unix(directory, name)
            .await
            .map_err(|source| ControlError::Host { action: "connect to the control socket", source })?;
        let (read, writer) = stream.into_split();
        let (sender, mut answers) = mpsc::channel(4);
        let reader = tokio::spawn(read_answers(BufReader::new(read), sender));
        let greeted = tokio::time::timeout(patience, answers.recv()).await;
        let exchange = Mutex::new(Exchange { writer, answers, next: 0, out_of_step: false });
        let qmp = Self { exchange, reader, patience: ordinary };
        match greeted {
            Err(_) => {
                return Err(ControlError::Unresponsive { command: "greeting", seconds: patience.as_secs() });
            }
            Ok(None) => return Err(ControlError::Ended),
            Ok(Some(greeting)) if greeting.get("QMP").is_none() => {
                return Err(ControlError::Garbled { command: "greeting" });
            }
            Ok(Some(_)) => {}
        }
        qmp.run_within("qmp_capabilities", json!({}), patience).await?;
        Ok(qmp)
    }

    /// Runs a command with the ordinary deadline.
    pub(super) async fn run(&self, command: &'static str, arguments: Value) -> Result<Value, ControlError> {
        self.exchange(command, arguments, None, self.patience).await
    }

    /// Runs a command that may take longer.
    pub(super) async fn run_within(
        &self,
        command: &'static str,
        arguments: Value,
        patience: Duration,
    ) -> Result<Value, ControlError> {
        self.exchange(command, arguments, None, patience.max(self.patience)).await
    }

    /// Hands QEMU an open file; it is then known as `/dev/fdset/{set}`.
    pub(super) async fn pass_file(&self, set: u32, file: BorrowedFd<'_>) -> Result<(), ControlError> {
        self.exchange("add-fd", json!({ "fdset-id": set }), Some(file), self.patience).await.map(drop)
    }

    /// Hands QEMU an open file; it is then known by this name, to the one command that takes it.
    pub(super) async fn pass_named(
        &self,
        name: &'static str,
        file: BorrowedFd<'_>,
    ) -> Result<(), ControlError> {
        self.exchange("getfd", json!({ "fdname": name }), Some(file), self.patience).await.map(drop)
    }

    async fn exchange(
        &self,
        command: &'static str,
        arguments: Value,
        file: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<Value, ControlError> {
        let mut exchange = self.exchange.lock().await;
        if exchange.out_of_step {
            return Err(ControlError::Unresponsive { command, seconds: 0 });
        }
        let number = exchange.next;
        exchange.next += 1;
        let mut line = json!({ "execute": command, "arguments": arguments, "id": number }).to_string();
        line.push('\n');
        let unresponsive = ControlError::Unresponsive { command, seconds: patience.as_secs() };
        let conversation = async {
            exchange.out_of_step = true;
            send(&exchange.writer, line.as_bytes(), file).await.map_err(|_| ControlError::Ended)?;
            exchange.out_of_step = false;
            loop {
                let answer = exchange.answers.recv().await.ok_or(ControlError::Ended)?;
                // Whoever asked for any other did not wait for it.
                if answer.get("id").and_then(Value::as_u64) == Some(number) {
                    return Ok::<_, ControlError>(answer);
                }
            }
        };
        let answer = tokio::time::timeout(patience, conversation).await.map_err(|_| unresponsive)??;
        if let Some(error) = answer.get("error") {
            let reason = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
            return Err(ControlError::Refused { command, reason: reason.chars().take(500).collect() });
        }
        answer.get("return").cloned().ok_or(ControlError::Garbled { command })
    }
}

async fn read_answers(mut read: BufReader<OwnedReadHalf>, answers: mpsc::Sender<Value>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut read).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) if line.last() != Some(&b'\n') => return,
            Ok(_) => {}
        }
        match parse(&line) {
            Some(Line::Event) => {}
            Some(Line::Answer(answer)) => {
                if answers.send(answer).await.is_err() {
                    return;
                }
            }
            None => return,
        }
    }
}

pub(crate) enum Line {
    Event,
    Answer(Value),
}

/// Tells events from answers (and the greeting); anything else is not QMP.
pub(crate) fn parse(line: &[u8]) -> Option<Line> {
    let message: Value = serde_json::from_slice(line).ok()?;
    let has = |key| message.get(key).is_some();
    if has("event") {
        return Some(Line::Event);
    }
    (has("QMP") || has("return") || has("error")).then_some(Line::Answer(message))
}

async fn send(
    writer: &tokio::net::unix::OwnedWriteHalf,
    mut line: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let stream: &UnixStream = writer.as_ref();
    let mut descriptors: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    while !line.is_empty() {
        stream.writable().await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            }
            Ok(sendmsg(stream.as_fd(), &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?)
        });
        match sent {
            Ok(count) => {
                descriptors.clear();
                line = &line[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Connects to a unix socket however long its directory's path is, and wherever that was renamed to.
pub(super) async fn connect_unix(directory: &File, name: &str) -> io::Result<UnixStream> {
    UnixStream::connect(short_path(directory, name)).await
}

/// Listens on a unix socket however long its directory's path is; replaces a stale one.
pub(super) fn listen_unix(directory: &File, name: &str) -> io::Result<std::os::unix::net::UnixListener> {
    let path = short_path(directory, name);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::net::UnixListener::bind(path)
}

/// Socket addresses hold 108 bytes; a data directory's path may be longer.
fn short_path(directory: &File, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

//! Runs a kernel with pipes, speaks its protocol and collects what a cell says.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use interpreter::wire::{Mark, Piece, Scanner};
use interpreter::{CellId, Kernel, Language};
use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// When what was interrupted and goes on is interrupted again, as the host does it.
const INSIST_AFTER: Duration = Duration::from_millis(500);

/// A kernel's process; killed when dropped, with all it started.
pub(crate) struct Driver {
    child: Child,
    stdin: ChildStdin,
    pieces: Receiver<(usize, Vec<u8>)>,
    directory: TempDir,
}

/// What a cell did.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) records: Vec<Value>,
    pub(crate) exit: i32,
    pub(crate) count: u64,
}

impl Report {
    /// The forms of the last thing shown.
    pub(crate) fn last(&self) -> &Value {
        &self.records.last().unwrap_or_else(|| panic!("nothing was shown: {self:?}"))["display"]["data"]
    }

    /// What was raised.
    pub(crate) fn error(&self) -> &Value {
        let found = self.records.iter().find(|record| record.get("error").is_some());
        &found.unwrap_or_else(|| panic!("nothing was raised: {self:?}"))["error"]
    }
}

impl Driver {
    /// Starts a kernel, or tells why that is not possible here.
    pub(crate) fn start(language: Language, program: &str) -> Option<Driver> {
        let directory = tempfile::tempdir().unwrap();
        let kernel = Kernel::of(language);
        let file = directory.path().join(kernel.file_name());
        std::fs::write(&file, kernel.source()).unwrap();
        let cells = directory.path().join("cells");
        std::fs::create_dir(&cells).unwrap();
        let words = kernel.command(program, &file.to_string_lossy(), &cells.to_string_lossy());
        let there =
            Command::new(&words[0]).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // Whoever started the tests may have them ignore interrupts, as shells do with what runs in the background, and then neither
        // bash nor Node.js could be interrupted. In a guest nothing is ignored.
        let child = there.and_then(|_| {
            let mut command = Command::new("env");
            command.arg("--default-signal=INT").args(&words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.current_dir(directory.path()).process_group(0).spawn()
        });
        let mut child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: this host has no {program}, its kernel was not tested");
                return None;
            }
            Err(error) => panic!("start {program}: {error}"),
        };
        let (sender, pieces) = channel();
        let stdout = Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>;
        let stderr = Box::new(child.stderr.take().unwrap()) as Box<dyn Read + Send>;
        for (number, mut output) in [stdout, stderr].into_iter().enumerate() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                while let Ok(count @ 1..) = output.read(&mut buffer) {
                    if sender.send((number, buffer[..count].to_vec())).is_err() {
                        return;
                    }
                }
            });
        }
        let stdin = child.stdin.take().unwrap();
        Some(Driver { child, stdin, pieces, directory })
    }

    pub(crate) fn cells(&self) -> PathBuf {
        self.directory.path().join("cells")
    }

    /// Hands a cell to the kernel.
    pub(crate) fn send(&mut self, code: &str) -> CellId {
        self.send_as("run", code)
    }

    fn send_as(&mut self, verb: &str, code: &str) -> CellId {
        let id = CellId::random().unwrap();
        std::fs::write(self.cells().join(id.as_str()), code).unwrap();
        self.line(&format!("{verb} {id}"));
        id
    }

    /// Asks for something that is no cell.
    pub(crate) fn ask(&mut self, verb: &str, text: &str) -> Report {
        let id = self.send_as(verb, text);
        self.report(&id, |_| {}).unwrap_or_else(|| panic!("the kernel ended in {text:?}"))
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.stdin.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    }

    /// Runs a cell to its end.
    pub(crate) fn run(&mut self, code: &str) -> Report {
        let id = self.send(code);
        self.report(&id, |_| {}).unwrap_or_else(|| panic!("the kernel ended in {code:?}"))
    }

    /// Runs a cell, and interrupts it once it has written something.
    pub(crate) fn interrupt(&mut self, code: &str) -> Report {
        let id = self.send(code);
        let group = i32::try_from(self.child.id()).unwrap();
        let mut sent: Option<Instant> = None;
        let report = self.report(&id, |stdout| {
            if !stdout.is_empty() && sent.is_none_or(|at| at.elapsed() >= INSIST_AFTER) {
                sent = Some(Instant::now());
                signal(group, "INT");
            }
        });
        report.unwrap_or_else(|| panic!("the kernel ended in {code:?}"))
    }

    /// What a cell says; `None` when the kernel ends instead.
    pub(crate) fn report(&mut self, id: &CellId, mut seen: impl FnMut(&[u8])) -> Option<Report> {
        let mut scanners = [Scanner::new(id), Scanner::new(id)];
        let mut text = [Vec::new(), Vec::new()];
        let (mut began, mut ended) = ([false; 2], [None; 2]);
        let mut records = Vec::new();
        let deadline = Instant::now() + TIMEOUT;
        while ended.iter().any(Option::is_none) {
            let (channel, bytes) = match self.pieces.recv_timeout(INSIST_AFTER) {
                Ok(piece) => piece,
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    assert!(Instant::now() < deadline, "no end of the cell; so far {text:?}");
                    seen(&text[0]);
                    continue;
                }
            };
            for piece in scanners[channel].push(&bytes).unwrap() {
                match piece {
                    Piece::Text(bytes) if began[channel] && ended[channel].is_none() => {
                        text[channel].extend(bytes)
                    }
                    Piece::Text(_) => {}
                    Piece::Mark(Mark::Begin) => began[channel] = true,
                    Piece::Mark(Mark::Record(json)) => records.push(serde_json::from_slice(&json).unwrap()),
                    Piece::Mark(Mark::RecordAt { offset, length }) => {
                        let file = std::fs::read(self.cells().join(format!("{id}.out"))).unwrap();
                        let from = usize::try_from(offset).unwrap();
                        let json = &file[from..from + usize::try_from(length).unwrap()];
                        records.push(serde_json::from_slice(json).unwrap());
                    }
                    Piece::Mark(Mark::End { exit, count }) => ended[channel] = Some((exit, count)),
                }
            }
            seen(&text[0]);
        }
        let [stdout, stderr] = text.map(|bytes| String::from_utf8(bytes).unwrap());
        let (exit, count) = ended[0].unwrap();
        Some(Report { stdout, stderr, records, exit, count })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        signal(i32::try_from(self.child.id()).unwrap(), "KILL");
        self.child.wait().unwrap();
    }
}

/// Sends a signal to a process group.
fn signal(group: i32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg("--").arg(format!("-{group}")).status();
    assert!(status.is_ok(), "{status:?}");
}

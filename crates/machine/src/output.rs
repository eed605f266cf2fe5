//! What a machine process says itself: a pipe, of which the last bytes are kept. Read when something went wrong.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use tokio::net::unix::pipe::Receiver;

/// How much of a process's own words is kept; a pipe holds as much again.
const KEPT_BYTES: usize = 64 * 1024;
/// How much of it an error tells.
const TOLD_CHARS: usize = 1000;
/// Pause between reading what there is. A guest that never stops talking loses words and costs nobody time.
const PAUSE: Duration = Duration::from_millis(20);

/// The words of one process.
#[derive(Debug)]
pub(crate) struct Output {
    pipe: OwnedFd,
    kept: Mutex<VecDeque<u8>>,
}

impl Output {
    /// For a process to be started, and what that writes to. The process never waits: what is too much is lost. It holds both ends, so
    /// that it can go on writing when nobody reads any more.
    pub(crate) fn new() -> io::Result<(Self, File)> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (pipe, _) = rustix::pipe::pipe_with(flags)?;
        let both = reopen(&pipe, OFlags::RDWR)?;
        Ok((Self { pipe, kept: Mutex::default() }, File::from(both)))
    }

    /// Of a process that another node has started.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        // Whoever took over the process decides what its output is.
        let found =
            rustix::fs::open(format!("/proc/{pid}/fd/1"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::Fifo {
            return Err(io::Error::other("it writes to something else"));
        }
        Ok(Self { pipe: reopen(&found, OFlags::RDONLY)?, kept: Mutex::default() })
    }

    /// The end of what the process said.
    pub(crate) fn tail(&self) -> String {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.pipe, &mut buffer) {
            keep(&mut kept, &buffer[..count]);
        }
        let said = String::from_utf8_lossy(kept.make_contiguous()).into_owned();
        drop(kept);
        let said = said.trim();
        let start = said.char_indices().rev().nth(TOLD_CHARS).map_or(0, |(index, _)| index);
        said[start..].to_owned()
    }

    /// Reads until the process has ended, so that what is kept are its last words rather than its first.
    pub(crate) async fn listen(self: Arc<Self>) {
        let pipe = self.pipe.try_clone().and_then(Receiver::from_owned_fd);
        let Ok(pipe) = pipe else { return };
        let mut buffer = vec![0; 16 * 1024];
        loop {
            if pipe.readable().await.is_err() {
                return;
            }
            match self.take_in(&pipe, &mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => return,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads and keeps in one step, because whoever wants the tail reads too.
    fn take_in(&self, pipe: &Receiver, buffer: &mut [u8]) -> io::Result<usize> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let count = pipe.try_read(buffer)?;
        keep(&mut kept, &buffer[..count]);
        Ok(count)
    }
}

fn keep(kept: &mut VecDeque<u8>, said: &[u8]) {
    kept.extend(said);
    let surplus = kept.len().saturating_sub(KEPT_BYTES);
    kept.drain(..surplus);
}

/// Another end of a pipe.
fn reopen(pipe: &impl AsFd, end: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    Ok(rustix::fs::open(path, end | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_said_last_is_told() {
        let (output, mut process) = Output::new().unwrap();
        assert_eq!(output.tail(), "");
        process.write_all(b"first\nsecond\n").unwrap();
        assert_eq!(output.tail(), "first\nsecond");
        process.write_all("é".repeat(5000).as_bytes()).unwrap();
        assert_eq!(output.tail().chars().count(), TOLD_CHARS + 1);
        drop(process);
        assert!(output.tail().ends_with("éé"), "the words of a process that ended are there still");
    }

    #[test]
    fn nobody_waits_for_a_reader() {
        let (output, mut process) = Output::new().unwrap();
        let outcome = process.write_all(&vec![b'x'; 1 << 20]);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(output);
        assert_eq!(
            process.write(b"x").unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "no signal ends it either"
        );
    }

    #[tokio::test]
    async fn a_listener_keeps_the_last_words() {
        let (output, mut process) = Output::new().unwrap();
        let output = Arc::new(output);
        let listener = tokio::spawn(Arc::clone(&output).listen());
        for number in 0..40_000 {
            let line = format!("line {number}\n");
            while let Err(error) = process.write_all(line.as_bytes()) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        drop(process);
        listener.await.unwrap();
        assert!(output.tail().ends_with("line 39999"));
        assert_eq!(output.kept.lock().unwrap().len(), KEPT_BYTES);
    }

    #[test]
    fn the_output_of_a_process_is_found_again() {
        let (output, process) = Output::new().unwrap();
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "echo hello; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(process)
            .spawn()
            .unwrap();
        drop(output);
        let again = Output::of(child.id()).unwrap();
        while again.tail().is_empty() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        assert_eq!(again.tail(), "hello");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

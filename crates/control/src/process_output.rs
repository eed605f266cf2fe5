//! What a process has written until now, in one piece: for callers that ask again instead of following.

use std::time::Duration;

use contract::process::Process;
use guest_link::client::ProcessEvent;
use guest_link::message::{Channel, OffsetRange, Offsets, ProcessId};

use crate::caller::Caller;
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::process::view;

/// Most of each channel that one answer holds.
const BYTES_MAX: u64 = 64 * 1024;
/// How long a guest gets to send what it said it holds.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What a process wrote to one of its channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// What it wrote, with U+FFFD for bytes that are not UTF-8.
    pub text: String,
    /// Bytes since the process started, up to the first of these.
    pub offset: u64,
    /// Where to go on reading.
    pub next_offset: u64,
}

/// What a process wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOutput {
    /// The process, as it was when its output was read.
    pub process: Process,
    /// Standard output.
    pub stdout: OutputPiece,
    /// Standard error.
    pub stderr: OutputPiece,
}

/// One channel that is being read.
struct Reading {
    from: u64,
    until: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Reading {
    /// Reads from an offset on, or the end of what is held.
    fn begin(held: OffsetRange, asked: Option<u64>) -> Self {
        let from = match asked {
            Some(offset) => offset.clamp(held.start, held.end),
            None => held.start.max(held.end.saturating_sub(BYTES_MAX)),
        };
        Self { from, until: held.end.min(from + BYTES_MAX), at: from, bytes: Vec::new() }
    }

    fn is_complete(&self) -> bool {
        self.at >= self.until
    }

    fn take(&mut self, offset: u64, data: &[u8]) {
        if self.bytes.is_empty() {
            self.from = offset;
        }
        let room = usize::try_from(self.until.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        self.bytes.extend_from_slice(&data[..room]);
        self.at = offset + data.len() as u64;
    }

    /// What was read. A character that is not complete yet is left for the next answer; one that began before is left out.
    fn finish(mut self, is_first: bool) -> OutputPiece {
        if is_first && self.from > 0 {
            let begun = self.bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            self.bytes.drain(..begun);
            self.from += begun as u64;
        }
        if let Err(error) = std::str::from_utf8(last(&self.bytes))
            && error.error_len().is_none()
        {
            let begun = last(&self.bytes).len() - error.valid_up_to();
            // A process that writes no UTF-8 may end like this for ever: what is alone is given out.
            if begun < self.bytes.len() {
                self.bytes.truncate(self.bytes.len() - begun);
            }
        }
        OutputPiece {
            next_offset: self.from + self.bytes.len() as u64,
            text: String::from_utf8_lossy(&self.bytes).into_owned(),
            offset: self.from,
        }
    }
}

/// The last character, and what may have begun after it.
fn last(bytes: &[u8]) -> &[u8] {
    let from = bytes.iter().rposition(|byte| byte & 0xc0 != 0x80).unwrap_or_default();
    &bytes[from..]
}

impl Control {
    /// What a process has written, from these offsets on; where none is given, the end of what its sandbox holds.
    pub async fn process_output(
        &self,
        caller: &Caller,
        id: &str,
        process: u32,
        stdout_offset: Option<u64>,
        stderr_offset: Option<u64>,
    ) -> Result<ProcessOutput, ControlError> {
        let sandbox = self.enter_to_look(caller, id).await?;
        let info = sandbox.link.process(ProcessId(process)).await?;
        let mut stdout = Reading::begin(info.stdout, stdout_offset);
        let mut stderr = Reading::begin(info.stderr, stderr_offset);
        if !stdout.is_complete() || !stderr.is_complete() {
            let from = Offsets { stdout: stdout.from, stderr: stderr.from };
            let mut following = sandbox.link.attach(ProcessId(process), from).await?;
            let reading = async {
                while !stdout.is_complete() || !stderr.is_complete() {
                    match following.next().await? {
                        ProcessEvent::Output { channel: Channel::Stdout, offset, data } => {
                            stdout.take(offset, &data)
                        }
                        ProcessEvent::Output { channel: Channel::Stderr, offset, data } => {
                            stderr.take(offset, &data)
                        }
                        ProcessEvent::Gap { channel: Channel::Stdout, to, .. } => stdout.at = to,
                        ProcessEvent::Gap { channel: Channel::Stderr, to, .. } => stderr.at = to,
                        ProcessEvent::Exited(_) => break,
                    }
                }
                Ok::<(), ControlError>(())
            };
            tokio::time::timeout(READ_TIMEOUT, reading).await.map_err(|_| {
                ControlError::new(Kind::Unavailable, "the sandbox did not send the output; try again")
            })??;
        }
        Ok(ProcessOutput {
            process: view(info),
            stdout: stdout.finish(stdout_offset.is_none()),
            stderr: stderr.finish(stderr_offset.is_none()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(start: u64, end: u64) -> OffsetRange {
        OffsetRange { start, end }
    }

    #[test]
    fn the_end_is_read_unless_told_where_to_begin() {
        let range = |reading: Reading| (reading.from, reading.until);
        assert_eq!(range(Reading::begin(held(0, 10), None)), (0, 10));
        assert_eq!(range(Reading::begin(held(5, 10), None)), (5, 10));
        assert_eq!(range(Reading::begin(held(0, BYTES_MAX + 7), None)), (7, BYTES_MAX + 7));
        assert_eq!(range(Reading::begin(held(0, BYTES_MAX + 7), Some(0))), (0, BYTES_MAX));
        assert_eq!(range(Reading::begin(held(5, 10), Some(0))), (5, 10));
        assert!(Reading::begin(held(5, 10), Some(99)).is_complete());
    }

    #[test]
    fn no_more_than_was_asked_for_and_no_half_characters() {
        let mut reading = Reading::begin(held(0, 4), None);
        reading.take(0, "a\u{20ac}b".as_bytes());
        assert!(reading.is_complete());
        let piece = reading.finish(true);
        assert_eq!((piece.text.as_str(), piece.offset, piece.next_offset), ("a\u{20ac}", 0, 4));

        let mut reading = Reading::begin(held(0, 3), Some(0));
        reading.take(0, "a\u{20ac}".as_bytes());
        let piece = reading.finish(false);
        assert_eq!((piece.text.as_str(), piece.next_offset), ("a", 1));

        let mut reading = Reading::begin(held(0, 100), None);
        reading.take(2, &"\u{20ac}b".as_bytes()[1..]);
        let piece = reading.finish(true);
        assert_eq!((piece.text.as_str(), piece.offset, piece.next_offset), ("b", 4, 5));

        let mut reading = Reading::begin(held(0, 1), Some(0));
        reading.take(0, b"\xe2");
        assert_eq!(reading.finish(false).next_offset, 1, "it goes on");
    }
}

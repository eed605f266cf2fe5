//! What Firecracker counts, added up.
//!
//! It writes a line of JSON every minute and whenever it is asked, into a pipe in the machine's room. Each line has what was added since
//! the one before. A guest may have taken over its Firecracker: lines are bounded, and what is none, or has other fields, is left out.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Map, Value};
use tokio::net::unix::pipe::Receiver;

use crate::counters::Counters;

/// Longest line; what is longer is left out. An honest one of all devices has about 15 kB.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most that is read at once: a pipe holds 64 KiB, and a process that writes on and on keeps nobody here.
const READ_BYTES_MAX: usize = 256 * 1024;
/// Pause between reading what there is.
const PAUSE: Duration = Duration::from_millis(100);

/// Who reads the pipe, and what came of it.
#[derive(Debug)]
pub(super) struct Counting {
    pipe: Receiver,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: Lines,
    sums: Counters,
}

impl Counting {
    pub(super) fn new(pipe: Receiver) -> Arc<Self> {
        Arc::new(Self { pipe, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties the pipe until the process has ended, so that lines nobody asked for are not lost.
    pub(super) async fn listen(self: Arc<Self>) {
        while self.pipe.readable().await.is_ok() {
            // Through the runtime, so that it waits for more afterwards.
            let read = |buffer: &mut [u8]| self.pipe.try_read(buffer);
            if !self.lock().take_in(read) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The sums with all that the pipe holds by now, whether or not the runtime has heard of it.
    pub(super) fn sums(&self) -> Counters {
        let mut state = self.lock();
        state.take_in(|buffer| rustix::io::read(&self.pipe, buffer).map_err(Errno::into));
        state.sums
    }
}

impl State {
    /// Reads until there is nothing, or enough for once. `false` when there will be nothing more.
    fn take_in(&mut self, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> bool {
        let mut buffer = [0; 4096];
        let mut taken = 0;
        while taken < READ_BYTES_MAX {
            match read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    taken += count;
                    for line in self.lines.add(&buffer[..count]) {
                        if let Some(added) = parse(&line) {
                            self.sums = self.sums.plus(added);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// What a line adds; `None` for one that is no object.
pub(crate) fn parse(line: &[u8]) -> Option<Counters> {
    let line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    // Devices are named after their kind; what has its bare name is their sum, which would count twice.
    let sum = |kind: &str, field: &str| {
        let devices = line.iter().filter(|(name, _)| name.starts_with(kind));
        let numbers = devices.filter_map(|(_, device)| device.get(field)?.as_u64());
        numbers.fold(0, u64::saturating_add)
    };
    let (disks, cards) = (|field| sum("block_", field), |field| sum("net_", field));
    let given_back = line.get("balloon").and_then(|balloon| balloon.get("free_page_report_freed")?.as_u64());
    let given_back = given_back.unwrap_or(0);
    Some(Counters {
        disk_read_bytes: disks("read_bytes"),
        disk_written_bytes: disks("write_bytes"),
        disk_reads: disks("read_count"),
        disk_writes: disks("write_count"),
        disk_throttled: Some(disks("rate_limiter_throttled_events")),
        network_received_bytes: Some(cards("rx_bytes_count")),
        network_sent_bytes: Some(cards("tx_bytes_count")),
        network_throttled: Some(
            cards("rx_rate_limiter_throttled").saturating_add(cards("tx_rate_limiter_throttled")),
        ),
        given_back_bytes: Some(given_back),
    })
}

/// Puts lines together.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (piece, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |piece| (piece, true));
            if self.is_too_long || self.begun.len() + piece.len() > LINE_BYTES_MAX {
                self.is_too_long = true;
                self.begun = Vec::new();
            } else {
                self.begun.extend_from_slice(piece);
            }
            if ends && !std::mem::take(&mut self.is_too_long) {
                complete.push(std::mem::take(&mut self.begun));
            }
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"utc_timestamp_ms":1,"block_root":{"read_bytes":4096,"write_bytes":512,"read_count":2,"write_count":1,
        "rate_limiter_throttled_events":3},"block_write0":{"read_bytes":1},"block":{"read_bytes":4097},
        "net_net":{"rx_bytes_count":10,"tx_bytes_count":20,"rx_rate_limiter_throttled":1,"tx_rate_limiter_throttled":2},
        "net":{"rx_bytes_count":10},"balloon":{"free_page_report_freed":2097152},"vcpu":{"failures":0}}"#;

    fn line() -> String {
        LINE.replace('\n', "")
    }

    #[test]
    fn devices_are_added_up_and_their_sums_left_out() {
        let found = parse(line().as_bytes()).unwrap();
        let expected = Counters {
            disk_read_bytes: 4097,
            disk_written_bytes: 512,
            disk_reads: 2,
            disk_writes: 1,
            disk_throttled: Some(3),
            network_received_bytes: Some(10),
            network_sent_bytes: Some(20),
            network_throttled: Some(3),
            given_back_bytes: Some(2 << 20),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_not_understood_counts_nothing() {
        let nothing = parse(b"{}").unwrap();
        let odd = br#"{"block_a":7,"block_b":{"read_bytes":-1,"write_bytes":"9","read_count":1.5},"net_":null,"balloon":[]}"#;
        assert_eq!(parse(odd), Some(nothing));
        assert_eq!(nothing.disk_read_bytes, 0);
        let deep = "[".repeat(60_000);
        for broken in
            ["", "7", "[]", "{", "nonsense", r#"{"block_root":{"read_by{"utc_timestamp_ms":1}"#, &deep]
        {
            assert_eq!(parse(broken.as_bytes()), None, "{broken:.20}");
        }
        let most = format!(r#"{{"block_a":{{"read_bytes":{0}}},"block_b":{{"read_bytes":{0}}}}}"#, u64::MAX);
        assert_eq!(parse(most.as_bytes()).unwrap().disk_read_bytes, u64::MAX);
    }

    #[test]
    fn lines_come_in_pieces_and_too_long_ones_are_left_out() {
        let mut lines = Lines::default();
        assert!(lines.add(b"one").is_empty());
        assert_eq!(lines.add(b" and two\nthree\nfo"), [b"one and two".to_vec(), b"three".to_vec()]);
        for _ in 0..100 {
            assert!(lines.add(&[b'x'; 4096]).is_empty());
            assert!(lines.begun.len() <= LINE_BYTES_MAX);
        }
        assert_eq!(lines.add(b"\nfour\n"), [b"four".to_vec()]);
        lines.add(&vec![b'x'; LINE_BYTES_MAX]);
        assert_eq!(lines.add(b"\n")[0].len(), LINE_BYTES_MAX);
    }

    #[tokio::test]
    async fn what_is_in_the_pipe_is_in_the_sums() {
        let (sender, pipe) = tokio::net::unix::pipe::pipe().unwrap();
        let counting = Counting::new(pipe);
        let listening = tokio::spawn(Arc::clone(&counting).listen());
        let write = |text: &str| rustix::io::write(&sender, text.as_bytes()).unwrap();
        write(&format!("{}\nbroken\n{}", line(), &line()[..100]));
        assert_eq!(counting.sums().disk_read_bytes, 4097);
        write(&format!("{}\n", &line()[100..]));
        assert_eq!(counting.sums().disk_read_bytes, 2 * 4097);
        write(&format!("{}\n", line()));
        drop(sender);
        listening.await.unwrap();
        assert_eq!(counting.sums().disk_reads, 6);
    }
}

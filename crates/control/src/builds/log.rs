//! What a build says: whole lines in a file that can be read while it grows, up to a bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use builder::BuildLog;

/// Bytes of one log. More is left out, and the log says so.
const LOG_BYTES_MAX: u64 = 8 << 20;
/// Bytes of one line; the rest of it is left out.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes read at once.
const READ_BYTES: u64 = 256 << 10;

/// A log that is being written.
pub(crate) struct LogFile {
    state: Mutex<State>,
}

struct State {
    file: File,
    bytes: u64,
    /// Nothing more is written.
    ended: bool,
}

impl LogFile {
    /// Goes on with a log, or begins it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last != [b'\n'] {
            // A server that was killed may have left half a line.
            file.write_all(b"\n")?;
        }
        let bytes = file.metadata()?.len();
        Ok(Self { state: Mutex::new(State { file, bytes, ended: false }) })
    }

    /// Writes a last line, whatever its length, and nothing after it. Once.
    pub(crate) fn end(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.ended {
            state.write(line);
            state.ended = true;
        }
    }

    /// Whether its last line is there.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }
}

impl BuildLog for LogFile {
    fn line(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended || state.bytes > LOG_BYTES_MAX {
            return;
        }
        state.write(line);
        if state.bytes > LOG_BYTES_MAX {
            state.write(&format!("(the log has {} MiB; the rest is left out)", LOG_BYTES_MAX >> 20));
        }
    }
}

impl State {
    fn write(&mut self, line: &str) {
        let cut = line.floor_char_boundary(LINE_BYTES_MAX);
        let mut text: String = line[..cut]
            .chars()
            .map(|character| if is_line_end(character) { ' ' } else { character })
            .collect();
        text.push('\n');
        self.bytes += text.len() as u64;
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            tracing::warn!(%error, "a line of a build's log is lost");
        }
    }
}

/// Characters at which some client or other ends a line.
fn is_line_end(character: char) -> bool {
    matches!(
        character,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Whole lines from an offset on, and where the next begin. A log that is not there yet is empty.
pub(crate) fn read(path: &Path, offset: u64) -> io::Result<(Vec<String>, u64)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), offset)),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    Ok((text.lines().map(str::to_owned).collect(), offset + whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("pandastack-log-{name}-{}", std::process::id()))
    }

    #[test]
    fn lines_are_read_while_they_come() {
        let path = path("follow");
        assert_eq!(read(&path, 0).unwrap(), (vec![], 0));
        let log = LogFile::open(&path).unwrap();
        log.line("one\r\u{2028}two");
        let (lines, next) = read(&path, 0).unwrap();
        assert_eq!(lines, ["one  two"]);
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"hal").unwrap();
        assert_eq!(read(&path, next).unwrap(), (vec![], next), "half a line");
        let again = LogFile::open(&path).unwrap();
        again.end("error: no");
        again.end("error: twice");
        again.line("late");
        assert_eq!(read(&path, next).unwrap().0, ["hal", "error: no"]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_log_is_bounded_but_ends() {
        let path = path("bound");
        let log = LogFile::open(&path).unwrap();
        for _ in 0..600 {
            log.line(&"é".repeat(LINE_BYTES_MAX));
        }
        log.end("error: what matters");
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(length < LOG_BYTES_MAX + 3 * LINE_BYTES_MAX as u64, "{length}");
        let (lines, _) = read(&path, length - 200).unwrap();
        assert!(lines.iter().any(|line| line.contains("left out")), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "error: what matters");
        std::fs::remove_file(path).unwrap();
    }
}

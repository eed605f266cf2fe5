//! What a build says while it works.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Characters of one line; the rest of it is left out.
const LINE_CHARS_MAX: usize = 2000;
/// Lines of output of one step; what follows is left out, and how much that was is said.
const OUTPUT_LINES_MAX: usize = 20_000;
/// The last output of a step that failed, in its error.
const TAIL_LINES: usize = 15;
/// Characters of each of those.
const TAIL_CHARS: usize = 300;

/// Ends the first line of an error that the last output of a command follows.
pub(crate) const LAST_OUTPUT: &str = "; its last output:";

/// Takes the lines of a build. Called from many threads, and quickly: whoever must wait keeps a queue.
pub trait BuildLog: Send + Sync {
    /// A whole line without its newline, of bounded length.
    fn line(&self, line: &str);
}

impl<F: Fn(&str) + Send + Sync> BuildLog for F {
    fn line(&self, line: &str) {
        self(line);
    }
}

/// Numbers the parts of a build, as people know it from other builders.
pub(crate) struct Journal<'a> {
    log: &'a dyn BuildLog,
    parts: AtomicUsize,
}

impl<'a> Journal<'a> {
    pub(crate) fn new(log: &'a dyn BuildLog) -> Self {
        Self { log, parts: AtomicUsize::new(0) }
    }

    /// Begins a part: `#3 [2/5] RUN make`.
    pub(crate) fn begin(&self, title: &str) -> Part<'a> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed) + 1;
        let part = Part { log: self.log, number, started: Instant::now() };
        part.say(title);
        part
    }

    /// A line that belongs to no part.
    pub(crate) fn note(&self, text: &str) {
        self.log.line(&cut(text, LINE_CHARS_MAX));
    }
}

/// One part of a build.
pub(crate) struct Part<'a> {
    log: &'a dyn BuildLog,
    number: usize,
    started: Instant,
}

impl Part<'_> {
    pub(crate) fn say(&self, text: &str) {
        self.log.line(&cut(&format!("#{} {text}", self.number), LINE_CHARS_MAX));
    }

    pub(crate) fn cached(self) {
        self.say("CACHED");
    }

    pub(crate) fn done(self) {
        self.say(&format!("DONE {:.1}s", self.started.elapsed().as_secs_f64()));
    }

    pub(crate) fn failed(self, why: &dyn std::fmt::Display) {
        let text = why.to_string();
        // What follows was said line by line before.
        let first = text.lines().next().unwrap_or_default();
        self.say(&format!("ERROR: {}", first.trim_end_matches(LAST_OUTPUT)));
    }

    /// For the output of a command.
    pub(crate) fn output(&self) -> Output<'_> {
        Output { part: self, line: Vec::new(), lines: 0, left_out: 0, tail: Vec::new() }
    }
}

/// Output of a command, as lines with the time at which they came.
pub(crate) struct Output<'a> {
    part: &'a Part<'a>,
    line: Vec<u8>,
    lines: usize,
    left_out: usize,
    tail: Vec<String>,
}

impl Output<'_> {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                // Room for the longest line in the widest letters; what is beyond is cut anyway.
                _ if self.line.len() < LINE_CHARS_MAX * 4 => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        // A program that draws over its line ends with what should be seen.
        let shown = text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let shown: String = shown.chars().filter(|ch| *ch == '\t' || !ch.is_control()).collect();
        self.tail.push(cut(&shown, TAIL_CHARS));
        if self.tail.len() > TAIL_LINES {
            self.tail.remove(0);
        }
        self.lines += 1;
        if self.lines > OUTPUT_LINES_MAX {
            self.left_out += 1;
            return;
        }
        self.part.say(&format!("{:.1} {shown}", self.part.started.elapsed().as_secs_f64()));
    }

    /// Ends the output and gives its last lines.
    pub(crate) fn finish(mut self) -> Vec<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        if self.left_out > 0 {
            self.part.say(&format!("{} more lines are left out", self.left_out));
        }
        self.tail.retain(|line| !line.trim().is_empty());
        self.tail
    }
}

/// The first part of a text.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn output_becomes_bounded_lines() {
        let lines = Mutex::new(Vec::new());
        let log = |line: &str| lines.lock().unwrap().push(line.to_owned());
        let journal = Journal::new(&log);
        let part = journal.begin("[1/1] RUN x");
        let mut output = part.output();
        output.add(b"one\ntw");
        output.add(b"o\r\n 10%\r 20%\nbad \xff\x1b[1m\n");
        output.add(&vec![b'x'; 100_000]);
        output.add(b"\n");
        for _ in 0..OUTPUT_LINES_MAX {
            output.add(b"again\n");
        }
        output.add(b"last");
        let tail = output.finish();
        part.done();
        let lines = lines.lock().unwrap().clone();
        assert_eq!(lines[0], "#1 [1/1] RUN x");
        assert_eq!(lines[1], "#1 0.0 one");
        assert_eq!(lines[2], "#1 0.0 two");
        assert_eq!(lines[3], "#1 0.0  20%");
        assert_eq!(lines[4], "#1 0.0 bad \u{fffd}[1m");
        assert!(lines[5].ends_with("x…") && lines[5].chars().count() <= LINE_CHARS_MAX + 1);
        assert_eq!(lines[lines.len() - 2], "#1 6 more lines are left out");
        assert!(lines[lines.len() - 1].starts_with("#1 DONE 0."));
        assert_eq!(lines.len(), OUTPUT_LINES_MAX + 3);
        assert_eq!((tail.len(), tail[TAIL_LINES - 1].as_str()), (TAIL_LINES, "last"));
    }
}

//! Server-sent events, one after the other.

use hyper::body::Incoming;

use crate::error::ClientError;
use crate::http::Http;

/// Longest line; a server sends far shorter ones.
const LINE_BYTES_MAX: usize = 16 << 20;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its data.
    pub data: String,
}

/// Events as they come.
pub struct Events {
    http: Http,
    body: Incoming,
    lines: Lines,
}

impl Events {
    pub(crate) fn new(http: Http, body: Incoming) -> Self {
        Self { http, body, lines: Lines::default() }
    }

    /// The next event; nothing when the server has ended the stream.
    ///
    /// # Errors
    /// When the connection breaks, or is silent for too long.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.lines.event() {
                return Ok(Some(event));
            }
            if self.lines.unread.len() > LINE_BYTES_MAX {
                return Err(self.http.protocol("a line of an event stream has no end"));
            }
            match self.http.piece(&mut self.body).await? {
                Some(piece) => self.lines.unread.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// Bytes that become events.
#[derive(Default)]
struct Lines {
    unread: Vec<u8>,
    event: Event,
    begun: bool,
}

impl Lines {
    fn event(&mut self) -> Option<Event> {
        let mut read = 0;
        let mut whole = None;
        while let Some(end) = self.unread[read..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.unread[read..read + end]).into_owned();
            read += end + 1;
            if self.line(line.trim_end_matches('\r')) {
                whole = Some(std::mem::take(&mut self.event));
                break;
            }
        }
        self.unread.drain(..read);
        whole
    }

    /// Takes a line in; whether it completes an event.
    fn line(&mut self, line: &str) -> bool {
        if line.is_empty() {
            return std::mem::take(&mut self.begun);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" if self.event.data.is_empty() => value.clone_into(&mut self.event.data),
            "data" => {
                self.event.data.push('\n');
                self.event.data.push_str(value);
            }
            // Comments and what is not known.
            _ => return false,
        }
        self.begun = true;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_any_pieces() {
        let text = ": ping\n\nevent: stdout\ndata: {\"chunk\": \"a: b\"}\n\ndata: one\ndata: two\n\nevent: done\ndata: end\n\n";
        for size in [1, 2, 7, 1000] {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.unread.extend_from_slice(piece);
                while let Some(event) = lines.event() {
                    found.push((event.name, event.data));
                }
            }
            let expected = [("stdout", "{\"chunk\": \"a: b\"}"), ("", "one\ntwo"), ("done", "end")];
            let expected = expected.map(|(name, data)| (name.to_owned(), data.to_owned()));
            assert_eq!(found, expected, "{size}");
        }
    }
}

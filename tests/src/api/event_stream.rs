//! Reads event streams as strictly as the strictest published client: LF only, one `data:` line, nothing outside ASCII.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use serde_json::Value;

/// How long to wait for the next event. Twice the server's heartbeat and more.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// A stream of events that is being read.
pub struct EventStream {
    headers: HeaderMap,
    body: Incoming,
    text: String,
}

impl EventStream {
    pub(crate) fn new(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        Self { headers: parts.headers, body, text: String::new() }
    }

    /// Headers of the answer.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The next event, or `None` when the stream has ended in an orderly way.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if !block.starts_with(':') {
                    return parse(&block).map(Some);
                }
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.context("no event comes")?;
            let Some(frame) = frame else {
                ensure!(self.text.is_empty(), "half an event at the end: {:?}", self.text);
                return Ok(None);
            };
            if let Ok(data) = frame.context("the stream was cut off")?.into_data() {
                ensure!(data.is_ascii(), "bytes that are not ASCII: {data:?}");
                self.text.push_str(std::str::from_utf8(&data)?);
            }
        }
    }

    /// All events until the stream ends.
    pub async fn rest(mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }

    /// Reads until an event is as wanted.
    pub async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Result<Event> {
        loop {
            let event =
                self.next().await?.context("the stream ended before the event that was waited for")?;
            if wanted(&event) {
                return Ok(event);
            }
        }
    }
}

fn parse(block: &str) -> Result<Event> {
    let lines: Vec<&str> = block.split('\n').collect();
    let [name, data] = lines[..] else { anyhow::bail!("an event must be two lines: {block:?}") };
    ensure!(!block.contains('\r'), "a carriage return: {block:?}");
    let name = name.strip_prefix("event: ").with_context(|| format!("no name: {block:?}"))?;
    let data = data.strip_prefix("data: ").with_context(|| format!("no data: {block:?}"))?;
    Ok(Event { name: name.to_owned(), data: serde_json::from_str(data)? })
}

/// What events named `name` carry in `chunk`, joined.
pub fn joined(events: &[Event], name: &str) -> String {
    let chunks = events.iter().filter(|event| event.name == name);
    chunks.filter_map(|event| event.data["chunk"].as_str()).collect()
}

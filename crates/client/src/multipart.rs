//! A form with files, streamed.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::stream::{BoxStream, StreamExt};
use futures::{Stream, stream};

use crate::http::Bytes;

/// A form as it is written.
pub(crate) struct Form {
    boundary: String,
    parts: Vec<BoxStream<'static, io::Result<Bytes>>>,
}

impl Form {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // Long and new, so that it is in nothing that is sent.
        let boundary =
            format!("pandastack-{:032x}-{:x}", now.wrapping_mul(0x9e37_79b9_7f4a_7c15), std::process::id());
        Self { boundary, parts: Vec::new() }
    }

    pub(crate) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        let part = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{value}\r\n",
            self.boundary,
            quoted(name)
        );
        self.parts.push(stream::once(async { Ok(Bytes::from(part)) }).boxed());
    }

    pub(crate) fn file(
        &mut self,
        name: &str,
        content_type: &str,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) {
        let name = quoted(name);
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\
             Content-Type: {content_type}\r\n\r\n",
            self.boundary
        );
        let head = stream::once(async { Ok(Bytes::from(head)) });
        let tail = stream::once(async { Ok(Bytes::from_static(b"\r\n")) });
        self.parts.push(head.chain(content).chain(tail).boxed());
    }

    /// The form as bytes to send.
    pub(crate) fn finish(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let end = format!("--{}--\r\n", self.boundary);
        stream::iter(self.parts).flatten().chain(stream::once(async { Ok(Bytes::from(end)) }))
    }
}

/// A name within quotes, as browsers write it.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_form_is_written_in_order() {
        let mut form = Form::new();
        form.boundary = "b".to_owned();
        form.text("name", "mine");
        form.file("con\"text", "a/b", stream::iter([Ok(Bytes::from("12")), Ok(Bytes::from("3"))]));
        let pieces: Vec<_> = form.finish().map(|piece| piece.unwrap().to_vec()).collect().await;
        let text = String::from_utf8(pieces.concat()).unwrap();
        let expected = "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nmine\r\n--b\r\nContent-Disposition: \
            form-data; name=\"con%22text\"; filename=\"con%22text\"\r\nContent-Type: a/b\r\n\r\n123\r\n--b--\r\n";
        assert_eq!(text, expected);
    }
}

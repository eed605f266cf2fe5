//! One request and what comes of it. Dropping the handle cancels the stream in the guest unless it is over.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::state::{End, Item, OUTBOX_BYTES_MAX, Shared};
use super::{CallError, Link, LinkError};
use crate::frame::{self, Kind};
use crate::limits::{PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::message::{Event, Request, Response};
use crate::session::Tag;

/// At most one task waits for items and one for room to send, at any time.
pub(super) struct Stream {
    link: Link,
    id: u32,
}

impl Drop for Stream {
    fn drop(&mut self) {
        let shared = self.shared();
        let mut frame = Vec::new();
        frame::encode(&mut frame, Kind::Cancel, self.id, &[], shared.tag);
        let mut state = shared.lock();
        if state.close(self.id) {
            state.push_control(frame);
            drop(state);
            shared.work.notify_one();
        }
    }
}

impl Stream {
    /// The id of the stream that opens together with the session.
    pub(super) const FIRST: u32 = 1;

    /// The handle of that stream. To be made once.
    pub(super) fn first(link: Link) -> Stream {
        Stream { link, id: Stream::FIRST }
    }

    pub(super) fn open(link: Link, request: &Request) -> Result<Stream, LinkError> {
        let shared = &link.inner.shared;
        let payload = Stream::encode(request)?;
        let id = {
            let mut state = shared.lock();
            let id = state.open(payload.len())?;
            for frame in frames(id, &payload, shared.tag) {
                state.push_control(frame);
            }
            id
        };
        shared.work.notify_one();
        Ok(Stream { link, id })
    }

    /// The frames of a request.
    pub(super) fn encode_request(id: u32, request: &Request, tag: Tag) -> Result<Vec<Vec<u8>>, LinkError> {
        Ok(frames(id, &Stream::encode(request)?, tag))
    }

    fn encode(request: &Request) -> Result<Vec<u8>, LinkError> {
        let payload = postcard::to_stdvec(request).map_err(|_| LinkError::Unexpected)?;
        if payload.len() > REQUEST_BYTES_MAX {
            return Err(LinkError::RequestTooLong { bytes: payload.len() });
        }
        Ok(payload)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.link.inner.shared
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn poll_item(&self, context: &mut Context<'_>) -> Poll<Result<Item, LinkError>> {
        let mut state = self.shared().lock();
        if let Some((item, credit)) = state.pop(self.id) {
            drop(state);
            if credit {
                self.shared().work.notify_one();
            }
            return Poll::Ready(Ok(item));
        }
        if let Some(failure) = state.stream_failure() {
            return Poll::Ready(Err(failure.clone()));
        }
        let Some(stream) = state.streams.get_mut(&self.id) else {
            return Poll::Ready(Err(LinkError::Closed));
        };
        if stream.done {
            // Asked again after the final word.
            return Poll::Ready(Err(LinkError::Unexpected));
        }
        stream.inbox_waker = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) async fn item(&self) -> Result<Item, LinkError> {
        poll_fn(|context| self.poll_item(context)).await
    }

    /// The next item, which must be an event or the end.
    pub(super) async fn event(&self) -> Result<Result<Event, Response>, CallError> {
        match self.item().await? {
            Item::Event(event, _) => Ok(Ok(event)),
            Item::Done(outcome) => Ok(Err(outcome?)),
            Item::Data(..) | Item::End => Err(LinkError::Unexpected.into()),
        }
    }

    /// The final word, with nothing else expected before it.
    pub(super) async fn response(&self) -> Result<Response, CallError> {
        match self.item().await? {
            Item::Done(outcome) => Ok(outcome?),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Takes as much of `data` as there is room for, at least one byte. `None`: the guest takes no more.
    pub(super) fn poll_send(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<Option<usize>, LinkError>> {
        let shared = self.shared();
        let mut state = shared.lock();
        if let Some(failure) = state.stream_failure() {
            return Poll::Ready(Err(failure.clone()));
        }
        let Some(stream) = state.streams.get_mut(&self.id) else { return Poll::Ready(Ok(None)) };
        if stream.done || stream.end != End::Open {
            return Poll::Ready(Ok(None));
        }
        let room = OUTBOX_BYTES_MAX - stream.outbox.len();
        if room == 0 && !data.is_empty() {
            stream.outbox_waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(data.len());
        stream.outbox.extend(&data[..count]);
        let work = state.mark_ready(self.id);
        drop(state);
        if work {
            shared.work.notify_one();
        }
        Poll::Ready(Ok(Some(count)))
    }

    /// Takes all of `data`, waiting for room; `false` when the guest takes no more.
    pub(super) async fn send(&self, mut data: &[u8]) -> Result<bool, LinkError> {
        while !data.is_empty() {
            match poll_fn(|context| self.poll_send(context, data)).await? {
                Some(count) => data = &data[count..],
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Ready when everything sent so far has left for the guest.
    pub(super) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        let mut state = self.shared().lock();
        if let Some(failure) = state.stream_failure() {
            return Poll::Ready(Err(failure.clone()));
        }
        match state.streams.get_mut(&self.id) {
            Some(stream) if !stream.outbox.is_empty() && !stream.done => {
                stream.outbox_waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// No more data from this side.
    pub(super) fn end(&self) {
        let shared = self.shared();
        let mut state = shared.lock();
        if let Some(stream) = state.streams.get_mut(&self.id)
            && stream.end == End::Open
        {
            stream.end = End::Wanted;
            if state.mark_ready(self.id) {
                drop(state);
                shared.work.notify_one();
            }
        }
    }

    /// The next item as poll, failing on anything but data and the end of it; `None` when no more data comes.
    pub(super) fn poll_data(&self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, CallError>> {
        Poll::Ready(match ready!(self.poll_item(context))? {
            Item::Data(_, data) => Ok(Some(data)),
            Item::End => Ok(None),
            Item::Done(Ok(_)) => Ok(None),
            Item::Done(Err(failure)) => Err(failure.into()),
            Item::Event(..) => Err(LinkError::Unexpected.into()),
        })
    }
}

fn frames(id: u32, payload: &[u8], tag: Tag) -> Vec<Vec<u8>> {
    let mut pieces = payload.chunks(PAYLOAD_BYTES_MAX).peekable();
    let mut frames = Vec::new();
    while let Some(piece) = pieces.next() {
        let kind = if pieces.peek().is_some() { Kind::RequestPart } else { Kind::Request };
        let mut frame = Vec::new();
        frame::encode(&mut frame, kind, id, piece, tag);
        frames.push(frame);
    }
    frames
}

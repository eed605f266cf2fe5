//! Sessions: how one begins, what ends it, and the silence in which a snapshot is taken.

use guest_link::frame::{self, CONTROL_STREAM, Decoder, Incoming, Kind};
use guest_link::limits::{REQUEST_BYTES_MAX, STREAMS_MAX, cost};
use guest_link::message::{self, Failure, GuestControl, HostControl, Quiesced, Request};
use guest_link::session::{GuestInfo, Hello, PROTOCOL_VERSION, Tag, encode_reply};

use super::completion::Completion;
use super::port::Received;
use super::stream::Stream;
use super::{Agent, Flow, Hangup};
use crate::identity;
use crate::kernel;
use crate::system;

/// Whether the guest may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Yes.
    None,
    /// Until file systems are flushed.
    Flushing,
    /// The frame being written is followed by `Quiesced`.
    Wanted,
    /// No: `Quiesced` was the last word.
    Kept,
}

impl Agent {
    /// Takes what the host sent.
    pub(super) fn read_port(&mut self, decoder: &mut Decoder) -> Flow {
        self.port.begin_turn();
        loop {
            match self.port.receive(decoder, &self.poll) {
                Received::Bytes => self.take_frames(decoder),
                Received::Nothing => return Flow::Goes,
                Received::HungUp if self.hangup == Hangup::Exit => {
                    self.end_session();
                    return Flow::Ended;
                }
                // A machine that was saved has lost its connection, and so has everyone restored from it. A session that had fallen
                // silent for that lost nothing: it goes on with the next connection, unless that begins another.
                Received::HungUp if self.port.is_of_connections() => {
                    if self.silence != Silence::Kept {
                        self.end_session();
                    }
                    return Flow::Goes;
                }
                // A port may hand over a new host's first bytes before it says that there is a new host, and even before it says
                // that the old one went: what went is then not whom the session is with.
                Received::HungUp => {
                    if self.port.connected && !self.port.has_a_new_host() {
                        self.port.connected = false;
                        self.end_session();
                    }
                    return Flow::Goes;
                }
            }
        }
    }

    fn take_frames(&mut self, decoder: &mut Decoder) {
        // A guest's decoder recovers from everything, so it gives no errors.
        while let Ok(Some(incoming)) = decoder.next() {
            match incoming {
                Incoming::Hello(hello) => self.begin_session(&hello),
                Incoming::Frame { kind, stream, payload } if self.session.is_some() => {
                    self.take_frame(kind, stream, payload);
                }
                Incoming::Frame { .. } | Incoming::Reply(_) => {}
            }
        }
    }

    /// The newest host wins: what an older one was doing is detached or aborted.
    fn begin_session(&mut self, hello: &Hello) {
        self.end_session();
        let tag = Tag::of(&hello.nonce);
        let info = GuestInfo {
            version: PROTOCOL_VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            sessions_before: self.sessions,
            uptime_ns: kernel::monotonic_ns(),
        };
        self.sessions += 1;
        frame::encode(
            &mut self.port.out,
            Kind::HelloReply,
            CONTROL_STREAM,
            &encode_reply(&hello.nonce, &info),
            tag,
        );
        // A host of another version learns ours and is not served.
        self.session = (hello.version == PROTOCOL_VERSION).then_some(tag);
    }

    fn end_session(&mut self) {
        self.session = None;
        self.partial = None;
        self.silence = Silence::None;
        self.port.discard();
        self.processes.forget_streams();
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            self.close(id);
        }
        self.ready.clear();
        self.credits.clear();
        // Nobody holds them back any more.
        self.loud = self.processes.iter().map(|process| process.id.0).collect();
    }

    fn take_frame(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        match kind {
            Kind::Request | Kind::RequestPart => self.take_request(kind, stream, payload),
            Kind::Data => self.take_data(stream, payload),
            Kind::End => self.take_end(stream),
            Kind::Credit => {
                let bytes = payload.try_into().map_or(0, u32::from_le_bytes);
                if let Some(open) = self.streams.get_mut(&stream) {
                    open.credit = open.credit.saturating_add(bytes);
                    open.enqueue(stream, &mut self.ready);
                }
            }
            Kind::Cancel => self.close(stream),
            Kind::Control => self.take_control(payload),
            // Nothing a host says.
            Kind::Event | Kind::DataError | Kind::Done | Kind::Hello | Kind::HelloReply => {}
        }
    }

    fn take_request(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        let (id, mut whole) = self.partial.take().unwrap_or((stream, Vec::new()));
        if id != stream
            || whole.len() + payload.len() > REQUEST_BYTES_MAX
            || self.streams.contains_key(&stream)
        {
            // A host that mixes requests is broken; what it meant cannot be told.
            return;
        }
        if kind == Kind::RequestPart {
            whole.extend_from_slice(payload);
            self.partial = Some((stream, whole));
            return;
        }
        let request: Option<Request> = if whole.is_empty() {
            message::decode(payload)
        } else {
            whole.extend_from_slice(payload);
            message::decode(&whole)
        };
        if self.streams.len() >= STREAMS_MAX {
            // The client counts too, so it is not ours; without a stream there is no one to answer.
            return;
        }
        self.streams.insert(stream, Stream::new());
        self.serve(stream, request);
    }

    fn take_data(&mut self, id: u32, payload: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let cost = cost(payload.len());
        let Some(left) = stream.window_left.checked_sub(cost) else {
            self.fail(id, Failure::Malformed);
            return;
        };
        stream.window_left = left;
        self.input(id, payload.to_vec(), cost);
    }

    fn take_control(&mut self, payload: &[u8]) {
        match message::decode::<HostControl>(payload) {
            Some(HostControl::Quiesce { sync: true }) => {
                self.silence = Silence::Flushing;
                let session = self.sessions;
                self.workers.submit(move || {
                    system::sync();
                    Completion::Flushed { session }
                });
            }
            Some(HostControl::Quiesce { sync: false }) => self.silence = Silence::Wanted,
            Some(HostControl::Resume) => self.silence = Silence::None,
            None => {}
        }
    }

    /// File systems are flushed.
    pub(super) fn flushed(&mut self, session: u64) {
        if session == self.sessions && self.silence == Silence::Flushing {
            self.silence = Silence::Wanted;
        }
    }

    /// The last word before the silence.
    pub(super) fn say_quiesced(&mut self, tag: Tag) {
        identity::note_places();
        let quiesced =
            Quiesced { streams: self.streams.len() as u32, processes: self.processes.running() as u32 };
        let message = GuestControl::Quiesced(quiesced);
        if frame::encode_message(&mut self.port.out, Kind::Control, CONTROL_STREAM, &message, tag).is_ok() {
            self.silence = Silence::Kept;
        }
    }
}

//! Who speaks next. Credit first, then one frame per stream in turn, so that a bulk transfer delays an answer by little.

use guest_link::frame::{self, Kind};
use guest_link::limits::{DATA_BYTES_MAX, FRAME_COST_BYTES, cost};
use guest_link::message::{Channel, Event, Response};
use guest_link::session::Tag;

use super::Agent;
use super::session::Silence;
use super::stream::Work;
use crate::process::Next;

/// What is made before it is written.
const COMPOSE_BYTES: usize = 64 * 1024;

/// What one turn of the event loop writes.
const WRITE_BYTES_PER_TURN: usize = 256 * 1024;

/// What a stream did with its turn.
enum Turn {
    /// It sent a frame and may have more.
    Sent,
    /// It has nothing to say, or no credit to say it.
    Quiet,
    /// It is over.
    Over,
}

impl Agent {
    /// Writes as much as the host takes and one turn allows.
    pub(super) fn pump(&mut self) {
        // The answer to a greeting goes with that to what was asked in the same breath.
        if self.port.takes() {
            self.compose();
        }
        let mut turn = 0;
        while self.port.flush() && turn < WRITE_BYTES_PER_TURN {
            self.compose();
            if self.port.out.is_empty() {
                return;
            }
            turn += self.port.out.len();
        }
    }

    /// Whether there is something to send.
    pub(super) fn can_compose(&self) -> bool {
        let speaks = match self.silence {
            Silence::None | Silence::Flushing => !self.ready.is_empty() || !self.credits.is_empty(),
            Silence::Wanted => true,
            Silence::Kept => false,
        };
        !self.port.out.is_empty() || (self.session.is_some() && speaks)
    }

    fn compose(&mut self) {
        let Some(tag) = self.session else { return };
        match self.silence {
            Silence::None | Silence::Flushing => {}
            Silence::Wanted => return self.say_quiesced(tag),
            Silence::Kept => return,
        }
        while let Some(id) = self.credits.pop_front() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.credit_queued = false;
            let owed = std::mem::take(&mut stream.owed);
            stream.window_left += owed;
            frame::encode(&mut self.port.out, Kind::Credit, id, &owed.to_le_bytes(), tag);
        }
        while self.port.out.len() < COMPOSE_BYTES
            && let Some(id) = self.ready.pop_front()
        {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.dequeue();
            match self.speak(id, tag) {
                Turn::Sent => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.enqueue(id, &mut self.ready);
                    }
                }
                Turn::Quiet => {}
                Turn::Over => self.close(id),
            }
        }
    }

    /// One frame of a stream.
    fn speak(&mut self, id: u32, tag: Tag) -> Turn {
        let Some(stream) = self.streams.get_mut(&id) else { return Turn::Over };
        if let Some(message) = stream.messages.front() {
            if message.kind == Kind::Done {
                frame::encode(&mut self.port.out, Kind::Done, id, &message.payload, tag);
                return Turn::Over;
            }
            let Some(credit) = stream.credit.checked_sub(cost(message.payload.len())) else {
                return Turn::Quiet;
            };
            stream.credit = credit;
            frame::encode(&mut self.port.out, message.kind, id, &message.payload, tag);
            stream.messages.pop_front();
            return Turn::Sent;
        }
        match &stream.work {
            Work::Attached { .. } => self.speak_output(id, tag),
            Work::File(_) => self.speak_file(id, tag),
            Work::Connection(_) => self.speak_connection(id, tag),
            Work::Answer | Work::Start { .. } | Work::Input { .. } => Turn::Quiet,
        }
    }

    fn speak_output(&mut self, id: u32, tag: Tag) -> Turn {
        let Some(stream) = self.streams.get_mut(&id) else { return Turn::Over };
        let Work::Attached { process } = stream.work else { return Turn::Quiet };
        let Ok(target) = self.processes.get_mut(process) else {
            self.fail(
                id,
                guest_link::message::Failure::Process(guest_link::message::ProcessFailure::NotFound),
            );
            return Turn::Sent;
        };
        let Some(at) = target.attached.iter().position(|attached| attached.stream == id) else {
            return Turn::Quiet;
        };
        let most = DATA_BYTES_MAX.min(stream.credit.saturating_sub(FRAME_COST_BYTES) as usize);
        let mut data = Vec::new();
        match target.next_for(&target.attached[at], most, &mut data) {
            Some(Next::Data { .. }) if data.is_empty() => Turn::Quiet,
            Some(Next::Data { channel, count }) => {
                stream.credit -= cost(count);
                let (kind, index) = match channel {
                    Channel::Stdout => (Kind::Data, 0),
                    Channel::Stderr => (Kind::DataError, 1),
                };
                target.attached[at].sent[index] += count as u64;
                frame::encode(&mut self.port.out, kind, id, &data, tag);
                // There is room in the ring now.
                self.read_output(process.0);
                Turn::Sent
            }
            Some(Next::Gap { channel, offset }) => {
                target.attached[at].sent[channel as usize] = offset;
                stream.say(&Event::Gap { channel, offset });
                self.speak(id, tag)
            }
            None => match target.finished_for(&target.attached[at]) {
                Some(exit) => {
                    self.answer(id, Ok(Response::Exited(exit)));
                    self.speak(id, tag)
                }
                None => Turn::Quiet,
            },
        }
    }

    fn speak_file(&mut self, id: u32, tag: Tag) -> Turn {
        let Some(stream) = self.streams.get_mut(&id) else { return Turn::Over };
        let Work::File(work) = &mut stream.work else { return Turn::Quiet };
        if work.sent < work.data.len() {
            let most = DATA_BYTES_MAX.min(stream.credit.saturating_sub(FRAME_COST_BYTES) as usize);
            let count = most.min(work.data.len() - work.sent);
            if count == 0 {
                return Turn::Quiet;
            }
            stream.credit -= cost(count);
            frame::encode(&mut self.port.out, Kind::Data, id, &work.data[work.sent..work.sent + count], tag);
            work.sent += count;
            return Turn::Sent;
        }
        if let Some(outcome) = work.outcome.take() {
            self.answer(id, outcome);
            return self.speak(id, tag);
        }
        // Everything produced so far is on its way: on to the next step.
        self.drive_file(id);
        Turn::Quiet
    }

    fn speak_connection(&mut self, id: u32, tag: Tag) -> Turn {
        let Some(stream) = self.streams.get_mut(&id) else { return Turn::Over };
        let Work::Connection(connection) = &mut stream.work else { return Turn::Quiet };
        if !connection.is_open() {
            return Turn::Quiet;
        }
        let most = DATA_BYTES_MAX.min(stream.credit.saturating_sub(FRAME_COST_BYTES) as usize);
        let mut data = Vec::new();
        let read = if most == 0 { Ok(None) } else { connection.read(most, &mut data) };
        match read {
            Ok(Some(0)) => frame::encode(&mut self.port.out, Kind::End, id, &[], tag),
            Ok(Some(count)) => {
                stream.credit -= cost(count);
                frame::encode(&mut self.port.out, Kind::Data, id, &data, tag);
            }
            Ok(None) if connection.is_over() => {
                self.answer(id, Ok(Response::Done));
                return self.speak(id, tag);
            }
            Ok(None) => return Turn::Quiet,
            Err(failure) => {
                self.fail(id, failure);
                return self.speak(id, tag);
            }
        }
        Turn::Sent
    }
}

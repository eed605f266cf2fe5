//! What the link's tasks and its streams share. One lock, held for moments and never across a wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::{Notify, oneshot};

use super::{LinkError, Outcome};
use crate::frame::{self, CONTROL_STREAM, Kind};
use crate::limits::{
    DATA_BYTES_MAX, FRAME_COST_BYTES, GUEST_WINDOW_BYTES, HOST_WINDOW_BYTES, REQUEST_BYTES_MAX, STREAMS_MAX,
    cost,
};
use crate::message::{Channel, Event, HostControl, Quiesced};
use crate::session::{GuestInfo, Tag};

/// Requests and cancellations that wait for a guest which does not read. Beyond it new requests are refused.
const CONTROL_BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX;

/// What the writer takes at once. Small enough that a request made meanwhile is not late.
const BATCH_BYTES: usize = 64 * 1024;

/// What a stream keeps for sending when the guest grants no window.
pub(super) const OUTBOX_BYTES_MAX: usize = 64 * 1024;

/// What a stream's consumer returns to the guest at once.
const CREDIT_BYTES_MIN: u32 = HOST_WINDOW_BYTES / 4;

pub(super) struct Shared {
    pub(super) guest: GuestInfo,
    pub(super) tag: Tag,
    state: Mutex<State>,
    /// Something to write.
    pub(super) work: Notify,
    /// The link failed.
    failed: Notify,
}

pub(super) struct State {
    pub(super) streams: HashMap<u32, StreamState>,
    /// Streams the guest has not finished.
    open: usize,
    next: u32,
    control: VecDeque<Vec<u8>>,
    control_bytes: usize,
    /// Streams that owe the guest credit.
    credits: VecDeque<u32>,
    /// Streams with data and window to send it.
    ready: VecDeque<u32>,
    phase: Phase,
    failure: Option<LinkError>,
}

enum Phase {
    Running,
    /// `Quiesce` is the next and last frame to write, or was written.
    Quiescing {
        frame: Option<Vec<u8>>,
        answer: oneshot::Sender<Quiesced>,
    },
    Quiesced,
}

#[derive(Default)]
pub(super) struct StreamState {
    pub(super) inbox: VecDeque<Item>,
    pub(super) inbox_waker: Option<Waker>,
    /// What the guest may still send.
    window: u32,
    /// What was consumed and not yet returned to the guest.
    consumed: u32,
    credit_queued: bool,
    pub(super) outbox: VecDeque<u8>,
    pub(super) outbox_waker: Option<Waker>,
    /// What we may still send.
    credit: u32,
    pub(super) end: End,
    ready_queued: bool,
    /// The guest is done with it.
    pub(super) done: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// More data may come.
    #[default]
    Open,
    /// To be sent after the outbox.
    Wanted,
    Sent,
}

/// Something a guest said on a stream.
#[derive(Debug)]
pub(super) enum Item {
    Data(Channel, Vec<u8>),
    Event(Event, u32),
    End,
    Done(Outcome),
}

impl Item {
    fn cost(&self) -> u32 {
        match self {
            Item::Data(_, data) => cost(data.len()),
            Item::Event(_, cost) => *cost,
            Item::End | Item::Done(_) => 0,
        }
    }
}

impl StreamState {
    fn new() -> StreamState {
        StreamState { window: HOST_WINDOW_BYTES, credit: GUEST_WINDOW_BYTES, ..StreamState::default() }
    }

    fn wants_to_send(&self) -> bool {
        !self.done
            && ((!self.outbox.is_empty() && self.credit > FRAME_COST_BYTES)
                || (self.outbox.is_empty() && self.end == End::Wanted))
    }
}

impl Shared {
    /// With `first`, stream 1 was opened together with the session.
    pub(super) fn new(guest: GuestInfo, tag: Tag, first: bool) -> Shared {
        let mut state = State {
            streams: HashMap::new(),
            open: 0,
            next: 1,
            control: VecDeque::new(),
            control_bytes: 0,
            credits: VecDeque::new(),
            ready: VecDeque::new(),
            phase: Phase::Running,
            failure: None,
        };
        if first {
            state.insert();
        }
        Shared { guest, tag, state: Mutex::new(state), work: Notify::new(), failed: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state usable: every change to it is complete when the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failure(&self) -> Option<LinkError> {
        self.lock().failure.clone()
    }

    /// Ends the link; the first reason counts.
    pub(super) fn fail(&self, error: LinkError) {
        let mut wakers = Vec::new();
        {
            let mut state = self.lock();
            state.failure.get_or_insert(error);
            state.phase = Phase::Running;
            for stream in state.streams.values_mut() {
                wakers.extend(stream.inbox_waker.take());
                wakers.extend(stream.outbox_waker.take());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
        self.failed.notify_waiters();
        self.work.notify_one();
    }

    pub(super) async fn closed(&self) -> LinkError {
        loop {
            let failed = self.failed.notified();
            if let Some(failure) = self.failure() {
                return failure;
            }
            failed.await;
        }
    }

    pub(super) async fn quiesce(&self, sync: bool) -> Result<Quiesced, LinkError> {
        let mut frame = Vec::new();
        frame::encode_message(
            &mut frame,
            Kind::Control,
            CONTROL_STREAM,
            &HostControl::Quiesce { sync },
            self.tag,
        )
        .map_err(|_| LinkError::Unexpected)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if !matches!(state.phase, Phase::Running) {
                return Err(LinkError::AlreadyQuiesced);
            }
            state.phase = Phase::Quiescing { frame: Some(frame), answer };
        }
        self.work.notify_one();
        match answered.await {
            Ok(quiesced) => Ok(quiesced),
            // The sender went with the phase: the link failed, or someone resumed.
            Err(_) => Err(self.failure().unwrap_or(LinkError::AlreadyQuiesced)),
        }
    }

    pub(super) fn resume(&self) {
        let mut frame = Vec::new();
        let encoded =
            frame::encode_message(&mut frame, Kind::Control, CONTROL_STREAM, &HostControl::Resume, self.tag);
        {
            let mut state = self.lock();
            match std::mem::replace(&mut state.phase, Phase::Running) {
                // Never said, so nothing to take back.
                Phase::Running | Phase::Quiescing { frame: Some(_), .. } => {}
                Phase::Quiescing { frame: None, .. } | Phase::Quiesced => {
                    if encoded.is_ok() {
                        state.control_bytes += frame.len();
                        state.control.push_front(frame);
                    }
                }
            }
        }
        self.work.notify_one();
    }
}

impl State {
    fn insert(&mut self) -> u32 {
        let id = self.next;
        self.next += 1;
        self.open += 1;
        self.streams.insert(id, StreamState::new());
        id
    }

    /// Reserves a stream for a request of `bytes`.
    pub(super) fn open(&mut self, bytes: usize) -> Result<u32, LinkError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        // The second bound cannot be met in practice: four thousand million requests in one session.
        if self.open >= STREAMS_MAX || self.next == u32::MAX {
            return Err(LinkError::TooManyStreams);
        }
        if self.control_bytes + bytes > CONTROL_BYTES_MAX {
            return Err(LinkError::Congested);
        }
        Ok(self.insert())
    }

    pub(super) fn push_control(&mut self, frame: Vec<u8>) {
        self.control_bytes += frame.len();
        self.control.push_back(frame);
    }

    pub(super) fn stream_failure(&self) -> Option<&LinkError> {
        self.failure.as_ref()
    }

    /// Forgets a stream whose handle is gone; tells whether the guest must be told.
    pub(super) fn close(&mut self, id: u32) -> bool {
        match self.streams.remove(&id) {
            Some(stream) if !stream.done => {
                self.open -= 1;
                self.failure.is_none()
            }
            _ => false,
        }
    }

    /// Takes an item for its consumer; tells whether the writer has credit to return.
    pub(super) fn pop(&mut self, id: u32) -> Option<(Item, bool)> {
        let stream = self.streams.get_mut(&id)?;
        let item = stream.inbox.pop_front()?;
        stream.consumed += item.cost();
        if stream.done || stream.credit_queued || stream.consumed < CREDIT_BYTES_MIN {
            return Some((item, false));
        }
        stream.credit_queued = true;
        self.credits.push_back(id);
        Some((item, true))
    }

    /// Puts a stream with something to send in line.
    pub(super) fn mark_ready(&mut self, id: u32) -> bool {
        match self.streams.get_mut(&id) {
            Some(stream) if !stream.ready_queued && stream.wants_to_send() => {
                stream.ready_queued = true;
                self.ready.push_back(id);
                true
            }
            _ => false,
        }
    }

    /// What the guest said on a stream, checked against the stream's window. Items for streams that were closed are dropped.
    pub(super) fn deliver(&mut self, id: u32, item: Item) -> Result<Option<Waker>, LinkError> {
        if id == 0 || id >= self.next {
            return Err(LinkError::Protocol("frame on a stream that was never opened"));
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        if stream.done {
            return Err(LinkError::Protocol("frame on a finished stream"));
        }
        let Some(window) = stream.window.checked_sub(item.cost()) else {
            return Err(LinkError::Protocol("more data than the window allows"));
        };
        stream.window = window;
        if let Item::Done(_) = item {
            stream.done = true;
            stream.outbox.clear();
            self.open -= 1;
            if let Some(waker) = stream.outbox_waker.take() {
                waker.wake();
            }
        }
        stream.inbox.push_back(item);
        Ok(stream.inbox_waker.take())
    }

    /// The guest consumed data of ours.
    pub(super) fn grant(&mut self, id: u32, bytes: u32) -> Result<bool, LinkError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(false) };
        let Some(credit) = stream.credit.checked_add(bytes) else {
            return Err(LinkError::Protocol("window without bound"));
        };
        stream.credit = credit;
        Ok(self.mark_ready(id))
    }

    /// The guest has gone silent. A late answer, after a resume, is of no interest.
    pub(super) fn quiesced(&mut self, quiesced: Quiesced) {
        match std::mem::replace(&mut self.phase, Phase::Quiesced) {
            Phase::Quiescing { frame: None, answer } => {
                // Nobody waiting is fine: `resume` will be called.
                let _ = answer.send(quiesced);
            }
            other => self.phase = other,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Quiesced)
    }

    /// The next bytes for the guest, whole frames only; empty when there is nothing to say.
    pub(super) fn batch(&mut self, tag: Tag) -> Vec<u8> {
        let mut out = Vec::new();
        match &mut self.phase {
            Phase::Running => {}
            Phase::Quiescing { frame, .. } => return frame.take().unwrap_or_default(),
            Phase::Quiesced => return out,
        }
        while let Some(id) = self.credits.pop_front() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.credit_queued = false;
            if stream.done {
                continue;
            }
            let consumed = std::mem::take(&mut stream.consumed);
            stream.window += consumed;
            frame::encode(&mut out, Kind::Credit, id, &consumed.to_le_bytes(), tag);
        }
        while out.len() < BATCH_BYTES
            && let Some(frame) = self.control.pop_front()
        {
            self.control_bytes -= frame.len();
            out.extend_from_slice(&frame);
        }
        while out.len() < BATCH_BYTES
            && let Some(id) = self.ready.pop_front()
        {
            self.send_piece(id, &mut out, tag);
        }
        out
    }

    /// One data frame of a stream, which then goes to the end of the line.
    fn send_piece(&mut self, id: u32, out: &mut Vec<u8>, tag: Tag) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.ready_queued = false;
        if !stream.wants_to_send() {
            return;
        }
        if stream.outbox.is_empty() {
            stream.end = End::Sent;
            frame::encode(out, Kind::End, id, &[], tag);
            return;
        }
        let length = stream.outbox.len().min(DATA_BYTES_MAX).min((stream.credit - FRAME_COST_BYTES) as usize);
        let piece: Vec<u8> = stream.outbox.drain(..length).collect();
        stream.credit -= cost(length);
        frame::encode(out, Kind::Data, id, &piece, tag);
        if let Some(waker) = stream.outbox_waker.take() {
            waker.wake();
        }
        self.mark_ready(id);
    }
}

//! The loop that answers the faults of one machine.
//!
//! One task reads events and puts pages in place, so that the two never race: what was given back is known before anything
//! else is placed. Chunks are fetched by tasks of their own and never hold it up. Pages that nobody waits for are placed a
//! few at a time, between looking for faults: those that a trace foretells, and all of a chunk that is needed again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::placing::{Interrupt, Placing};
use super::regions::Regions;
use super::replay::Replay;
use super::userfault::{Event, Userfault};
use super::{Extent, PageError, Shared};
use crate::stream::{CHUNK_BYTES, Chunk, ChunkSource, FetchError, chunk_of};

/// Chunks kept at hand: the pages a guest asks for next are mostly in the ones it has just asked for. 16 MiB at most.
const RECENT_CHUNKS: usize = 4;

/// How long chunks are kept after the last fault.
const RECENT_TIME: Duration = Duration::from_secs(1);

/// Pages placed ahead of need, with their neighbours, before faults are looked for again: about 50 µs.
const REPLAY_PAGES_PER_TURN: usize = 4;

/// How often a page is tried at once while memory is given back, and how long to wait before each further try. The kernel
/// refuses until the thread that gives back has run again, which takes microseconds unless the host is busy.
const QUICK_TRIES: u32 = 64;
const SLOW_TRY_AFTER: Duration = Duration::from_millis(1);

/// How long after the last other reader was told to stop all who wait are woken again. Far longer than it takes to stop, except on a
/// host that is very busy, for which there are the later ones.
const WAKE_AFTER: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20), Duration::from_secs(60)];

type Fetched = (u32, Result<Arc<Chunk>, FetchError>);

pub(super) struct Server {
    userfault: AsyncFd<Userfault>,
    regions: Regions,
    source: Arc<dyn ChunkSource>,
    shared: Arc<Shared>,
    /// There may be events that were not read yet and are not told again.
    has_more: bool,
    /// Offsets of pages that are waited for and can be placed, or asked for, right away.
    faults: VecDeque<u64>,
    /// Offsets of pages that are waited for, by the chunk that is on its way.
    waiting: HashMap<u32, Vec<u64>>,
    /// Chunks on their way, whoever wants them.
    fetching: HashSet<u32>,
    fetches: JoinSet<Fetched>,
    recent: VecDeque<(u32, Arc<Chunk>)>,
    /// Chunks that were fetched because somebody waited for a page.
    needed: HashSet<u32>,
    replay: Replay,
    others: Others,
    extent: Extent,
}

/// Who reads faults besides.
enum Others {
    /// Somebody, who passes them on.
    Reading(mpsc::Receiver<u64>),
    /// Nobody any more. One that was read last may be lost: then it has to be told again.
    Stopped { since: Instant, wakes: usize },
    /// Nobody, and nothing is lost.
    Gone,
}

impl Others {
    /// An offset that was passed on already.
    fn next_now(&mut self) -> Option<u64> {
        match self {
            Others::Reading(passed_on) => passed_on.try_recv().ok(),
            _ => None,
        }
    }

    /// The next offset that is passed on; `None` when it is time to wake all who wait.
    async fn next(&mut self) -> Option<u64> {
        if let Others::Reading(passed_on) = self {
            match passed_on.recv().await {
                Some(offset) => return Some(offset),
                None => *self = Others::Stopped { since: Instant::now(), wakes: 0 },
            }
        }
        let Others::Stopped { since, wakes } = self else { return std::future::pending().await };
        tokio::time::sleep_until(*since + WAKE_AFTER[*wakes]).await;
        *wakes += 1;
        if *wakes == WAKE_AFTER.len() {
            *self = Others::Gone;
        }
        None
    }
}

impl Server {
    pub(super) fn new(
        userfault: AsyncFd<Userfault>,
        regions: Regions,
        source: Arc<dyn ChunkSource>,
        shared: Arc<Shared>,
        replay: Replay,
        passed_on: mpsc::Receiver<u64>,
        extent: Extent,
    ) -> Server {
        Server {
            userfault,
            regions,
            source,
            shared,
            has_more: false,
            faults: VecDeque::new(),
            waiting: HashMap::new(),
            fetching: HashSet::new(),
            fetches: JoinSet::new(),
            recent: VecDeque::new(),
            needed: HashSet::new(),
            replay,
            others: Others::Reading(passed_on),
            extent,
        }
    }

    /// Serves until the process is gone (`Ok`) or a page cannot be had.
    pub(super) async fn run(mut self) -> Result<(), PageError> {
        loop {
            match self.turn().await {
                Ok(()) => {}
                Err(Interrupt::Changing) => {}
                Err(Interrupt::Gone) => return Ok(()),
                Err(Interrupt::Failed(error)) => return Err(error),
            }
        }
    }

    async fn turn(&mut self) -> Result<(), Interrupt> {
        self.read_events()?;
        while let Some(offset) = self.others.next_now() {
            self.pass_on(offset)?;
        }
        self.serve_faults().await?;
        if self.has_more {
            tokio::task::yield_now().await;
            return Ok(());
        }
        if self.replay.has_page() {
            self.place_ahead()?;
            tokio::task::yield_now().await;
            return Ok(());
        }
        while let Some(number) = self.replay.next_chunk() {
            match self.recently(number) {
                Some(chunk) => self.replay.arrived(number, &chunk),
                None => self.fetch(number),
            }
        }
        if self.replay.has_page() {
            return Ok(());
        }
        tokio::select! {
            biased;
            ready = self.userfault.readable() => {
                // Cleared before the events are read, so that one that comes meanwhile is told again.
                ready.map_err(|error| Interrupt::Failed(PageError::Read(Arc::new(error))))?.clear_ready();
            }
            passed_on = self.others.next() => match passed_on {
                Some(offset) => self.pass_on(offset)?,
                None => self.wake_all()?,
            },
            Some(fetched) = self.fetches.join_next() => {
                let (number, chunk) = fetched.map_err(|_| Interrupt::Failed(PageError::Lost))?;
                self.arrived(number, chunk)?;
            }
            () = tokio::time::sleep(RECENT_TIME), if !self.recent.is_empty() => self.recent.clear(),
        }
        Ok(())
    }

    fn read_events(&mut self) -> Result<(), Interrupt> {
        // Held from before an event is read until it is known: whoever gave memory back goes on once it was read.
        let mut state = self.shared.state();
        let mut events = Vec::new();
        self.has_more = self
            .userfault
            .get_ref()
            .read(&mut events)
            .map_err(|error| Interrupt::Failed(PageError::Read(Arc::new(error))))?;
        for event in events {
            match event {
                Event::Fault { address } => {
                    let outside = Interrupt::Failed(PageError::Outside { address });
                    self.faults.push_back(self.regions.offset_of(address).ok_or(outside)?);
                    state.counts.faults += 1;
                }
                Event::Remove { start, end } => {
                    for part in self.regions.parts() {
                        let first = start.max(part.address);
                        let last = end.min(part.address + part.length);
                        if first < last {
                            let offset = |address: u64| part.offset + (address - part.address);
                            state.remove(offset(first)..offset(last));
                        }
                    }
                }
                Event::Other(event) => return Err(Interrupt::Failed(PageError::Event { event })),
            }
        }
        Ok(())
    }

    /// A fault that somebody else has read. What is there by now is woken like after any other.
    fn pass_on(&mut self, offset: u64) -> Result<(), Interrupt> {
        let page_bytes = self.regions.page_bytes();
        if offset >= self.regions.length() {
            return Err(Interrupt::Failed(PageError::Outside { address: offset }));
        }
        self.faults.push_back(offset - offset % page_bytes);
        self.shared.state().counts.faults += 1;
        Ok(())
    }

    /// Has everybody who waits ask again.
    fn wake_all(&self) -> Result<(), Interrupt> {
        for part in self.regions.parts() {
            self.userfault.get_ref().wake(part.address, part.length).map_err(|errno| match errno {
                Errno::SRCH => Interrupt::Gone,
                errno => Interrupt::Failed(PageError::Read(Arc::new(errno.into()))),
            })?;
        }
        Ok(())
    }

    async fn serve_faults(&mut self) -> Result<(), Interrupt> {
        let mut tries = 0;
        while let Some(offset) = self.faults.pop_front() {
            match self.serve(offset) {
                Ok(()) => tries = 0,
                Err(Interrupt::Changing) => {
                    self.faults.push_front(offset);
                    match tries < QUICK_TRIES {
                        true => tokio::task::yield_now().await,
                        false => tokio::time::sleep(SLOW_TRY_AFTER).await,
                    }
                    tries += 1;
                    self.read_events()?;
                }
                Err(interrupt) => return Err(interrupt),
            }
        }
        Ok(())
    }

    fn serve(&mut self, offset: u64) -> Result<(), Interrupt> {
        let number = chunk_of(offset);
        let chunk = self.recently(number);
        let map = self.source.pages(number);
        let mut state = self.shared.state();
        let (userfault, regions) = (self.userfault.get_ref(), &self.regions);
        let mut placing = Placing { userfault, regions, state: &mut state };
        // Memory that was given back may have been placed again just before it really went, so it is always tried.
        if placing.state.is_removed(offset) {
            return placing.place_zeros(offset, &map);
        }
        if placing.state.is_placed(offset) {
            return placing.wake(offset);
        }
        if placing.is_zero(&map, offset) {
            return placing.place_zeros(offset, &map);
        }
        if let Some(chunk) = chunk {
            placing.place_stored(offset, &chunk)?;
            state.note(offset);
            return Ok(());
        }
        drop(state);
        self.waiting.entry(number).or_default().push(offset);
        self.fetch(number);
        Ok(())
    }

    fn place_ahead(&mut self) -> Result<(), Interrupt> {
        let mut placed = 0;
        while placed < REPLAY_PAGES_PER_TURN {
            let Some((chunk, offset)) = self.replay.next_page() else { break };
            let mut state = self.shared.state();
            let (userfault, regions) = (self.userfault.get_ref(), &self.regions);
            let mut placing = Placing { userfault, regions, state: &mut state };
            let is_settled = placing.state.is_placed(offset) || placing.state.is_removed(offset);
            if !is_settled && !placing.is_zero(chunk.pages(), offset) {
                placed += 1;
                match placing.place_stored(offset, &chunk) {
                    Ok(()) => state.counts.foreseen += 1,
                    // Nobody waits for it. Should somebody, it is asked for.
                    Err(Interrupt::Changing | Interrupt::Failed(PageError::NoHugePage)) => return Ok(()),
                    Err(interrupt) => return Err(interrupt),
                }
            }
        }
        Ok(())
    }

    fn fetch(&mut self, number: u32) {
        if self.fetching.insert(number) {
            let source = Arc::clone(&self.source);
            self.fetches.spawn(async move { (number, source.chunk(number).await) });
        }
    }

    fn arrived(&mut self, number: u32, fetched: Result<Arc<Chunk>, FetchError>) -> Result<(), Interrupt> {
        self.fetching.remove(&number);
        let waiting = self.waiting.remove(&number);
        match fetched {
            Ok(chunk) => {
                self.shared.state().counts.chunks += 1;
                self.replay.arrived(number, &chunk);
                // A chunk that is needed again after a while is better kept in the guest: fetching it takes as long as
                // copying all of it.
                let is_needed_again = waiting.is_some() && !self.needed.insert(number);
                if is_needed_again || self.extent == Extent::Chunk {
                    let start = u64::from(number) * CHUNK_BYTES;
                    self.replay.add_whole(start, &chunk, self.regions.page_bytes());
                }
                self.recent.retain(|(other, _)| *other != number);
                self.recent.truncate(RECENT_CHUNKS - 1);
                self.recent.push_front((number, chunk));
                self.faults.extend(waiting.into_iter().flatten());
                Ok(())
            }
            Err(error) if waiting.is_none() => {
                tracing::debug!(chunk = number, error = &error as &dyn std::error::Error, "replay given up");
                self.replay.give_up();
                Ok(())
            }
            Err(error) => Err(Interrupt::Failed(PageError::Fetch(error))),
        }
    }

    fn recently(&mut self, number: u32) -> Option<Arc<Chunk>> {
        let place = self.recent.iter().position(|(other, _)| *other == number)?;
        let found = self.recent.remove(place)?;
        let chunk = Arc::clone(&found.1);
        self.recent.push_front(found);
        Some(chunk)
    }
}

//! Who has which slot. Plain values behind one lock that is never held while anything happens.
//!
//! ```text
//! free ─► making ─► ready ─► leased ─────► removing ─► free
//!            │               │    ▲          ▲   └─► stuck ─► removing (asked again)
//!            │               ▼    └───────┐  │
//!            │         being renewed ─► resting
//!            │               └───────────────┤
//!            └───────────────────────────────┘
//! ```
//!
//! Resting are the wires of sandboxes that sleep (`resting.rs`).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use super::{release::Progress, resting::Resting};
use crate::{address::Slot, policy::Policy, slots::SlotPool, wire::Wire};

/// How the slots of the pool are used, and what has happened since the network was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Slots in the pool.
    pub capacity: u32,
    /// Slots nobody uses.
    pub free: u32,
    /// Wires that wait for a sandbox.
    pub ready: u32,
    /// Wires being made, or renewed so that they can rest.
    pub making: u32,
    /// Slots that belong to sandboxes.
    pub leased: u32,
    /// Wires that wait for the sandbox that had them.
    pub resting: u32,
    /// Slots being removed.
    pub removing: u32,
    /// Slots whose removal failed and was not yet asked for again.
    pub stuck: u32,
    /// Leases served from wires made ahead.
    pub acquired_prepared_total: u64,
    /// Leases of a wire to the sandbox that had it before.
    pub acquired_again_total: u64,
    /// Leases that had to wait for a wire.
    pub acquired_cold_total: u64,
    /// Wires that could not be made.
    pub make_failures_total: u64,
}

/// A slot that belongs to a sandbox.
#[derive(Debug)]
pub(super) struct Leased {
    /// Unknown for a wire that was found broken.
    pub(super) policy: Option<Policy>,
    /// Its sandbox is about to give it back.
    pub(super) is_leaving: bool,
    /// Held while something is being done to the wire, so that policies and removal follow each other.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Leased {
    pub(super) fn new(policy: Option<Policy>) -> Self {
        Self { policy, is_leaving: false, turn: Arc::default() }
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) capacity: u32,
    pub(super) slots: SlotPool,
    pub(super) ready: VecDeque<Wire>,
    pub(super) making: u32,
    pub(super) leased: HashMap<Slot, Leased>,
    pub(super) resting: Resting<Wire>,
    pub(super) removing: HashMap<Slot, Progress>,
    pub(super) stuck: HashSet<Slot>,
    pub(super) closing: bool,
    pub(super) acquired_prepared_total: u64,
    pub(super) acquired_again_total: u64,
    pub(super) acquired_cold_total: u64,
    pub(super) make_failures_total: u64,
}

impl State {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity,
            slots: SlotPool::new(capacity),
            ready: VecDeque::new(),
            making: 0,
            leased: HashMap::new(),
            resting: Resting::new(),
            removing: HashMap::new(),
            stuck: HashSet::new(),
            closing: false,
            acquired_prepared_total: 0,
            acquired_again_total: 0,
            acquired_cold_total: 0,
            make_failures_total: 0,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            capacity: self.capacity,
            free: self.slots.free(),
            ready: count(self.ready.len()),
            making: self.making + count(self.resting.being_renewed()),
            leased: count(self.leased.len()),
            resting: count(self.resting.ready()),
            removing: count(self.removing.len()),
            stuck: count(self.stuck.len()),
            acquired_prepared_total: self.acquired_prepared_total,
            acquired_again_total: self.acquired_again_total,
            acquired_cold_total: self.acquired_cold_total,
            make_failures_total: self.make_failures_total,
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

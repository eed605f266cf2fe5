//! Which wires rest, and for whom. Pure; `rest.rs` makes them ready and removes them.
//!
//! ```text
//! begin ─► being renewed ─► ready ─► taken by its token
//!                └────────────┴────► taken to be removed: by its token, or as the oldest
//! ```
//!
//! A wire that is no longer listed here belongs to whoever took it, also if it is still being renewed.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::address::Slot;

/// Wires that rest at most. One more sends away the one that has rested longest.
pub(super) const RESTING_MAX: usize = 32;

/// Stands for one rest of one wire. A later rest of the same slot has another, so an old one does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    slot: Slot,
    number: u64,
}

impl Rest {
    /// A token that no other in this process equals.
    pub(super) fn new(slot: Slot) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { slot, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The slot that rests.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// A wire that rests.
#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) rest: Rest,
    /// Held while something is being done to the wire.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// Nothing while it is being renewed.
    pub(super) wire: Option<W>,
}

/// Every wire that rests, the one that began first in front.
#[derive(Debug)]
pub(super) struct Resting<W> {
    entries: VecDeque<Entry<W>>,
}

impl<W> Resting<W> {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new() }
    }

    /// Begins a rest. If that makes one too many, returns the oldest, which has to be removed.
    pub(super) fn begin(&mut self, rest: Rest, turn: Arc<tokio::sync::Mutex<()>>) -> Option<Entry<W>> {
        self.entries.push_back(Entry { rest, turn, wire: None });
        if self.entries.len() > RESTING_MAX { self.take_oldest() } else { None }
    }

    /// Whether the wire still rests.
    pub(super) fn has(&self, rest: Rest) -> bool {
        self.entries.iter().any(|entry| entry.rest == rest)
    }

    /// Files the renewed wire; gives it back if it was taken meanwhile.
    pub(super) fn renewed(&mut self, rest: Rest, wire: W) -> Result<(), W> {
        match self.entries.iter_mut().find(|entry| entry.rest == rest) {
            Some(entry) => {
                entry.wire = Some(wire);
                Ok(())
            }
            None => Err(wire),
        }
    }

    /// Takes the wire of a token.
    pub(super) fn take(&mut self, rest: Rest) -> Option<Entry<W>> {
        let index = self.entries.iter().position(|entry| entry.rest == rest)?;
        self.entries.remove(index)
    }

    /// Takes the wire that began to rest first.
    pub(super) fn take_oldest(&mut self) -> Option<Entry<W>> {
        self.entries.pop_front()
    }

    /// How many are being renewed.
    pub(super) fn being_renewed(&self) -> usize {
        self.entries.iter().filter(|entry| entry.wire.is_none()).count()
    }

    /// How many are ready to be taken again.
    pub(super) fn ready(&self) -> usize {
        self.entries.len() - self.being_renewed()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_of_one_slot_differ() {
        let slot = Slot::new(7);
        let (one, two) = (Rest::new(slot), Rest::new(slot));
        assert_ne!(one, two);
        assert_eq!((one.slot(), two.slot()), (slot, slot));
    }

    #[test]
    fn an_old_token_takes_nothing() {
        let mut resting = Resting::new();
        let (old, new) = (Rest::new(Slot::new(1)), Rest::new(Slot::new(1)));
        assert!(resting.begin(old, Arc::default()).is_none());
        assert!(resting.take(old).is_some_and(|entry| entry.wire.is_none()));
        assert!(resting.begin(new, Arc::default()).is_none());
        assert_eq!(resting.renewed(old, 'a'), Err('a'));
        assert_eq!(resting.renewed(new, 'b'), Ok(()));
        assert!(resting.take(old).is_none() && !resting.has(old));
        assert_eq!(resting.take(new).and_then(|entry| entry.wire), Some('b'));
    }

    /// What may happen to a list of resting wires; the numbers choose among the tokens given so far.
    #[derive(Debug, Clone)]
    enum Move {
        Begin,
        Renewed(prop::sample::Index),
        Take(prop::sample::Index),
        TakeOldest,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            3 => Just(Move::Begin),
            2 => any::<prop::sample::Index>().prop_map(Move::Renewed),
            1 => any::<prop::sample::Index>().prop_map(Move::Take),
            1 => Just(Move::TakeOldest),
        ];
        prop::collection::vec(one, 0..300)
    }

    proptest! {
        /// Every wire is handed out once, to its own token or as the oldest, and never more rest than may.
        #[test]
        fn keeps_to_a_plain_list(moves in moves()) {
            let mut resting = Resting::new();
            let (mut given, mut list) = (Vec::<Rest>::new(), Vec::<(Rest, bool)>::new());
            for next in moves {
                match next {
                    Move::Begin => {
                        let rest = Rest::new(Slot::new(given.len() as u32 % 5));
                        given.push(rest);
                        list.push((rest, false));
                        let surplus = (list.len() > RESTING_MAX).then(|| list.remove(0));
                        let taken = resting.begin(rest, Arc::default());
                        prop_assert_eq!(taken.map(|entry| (entry.rest, entry.wire.is_some())), surplus);
                    }
                    Move::Renewed(_) | Move::Take(_) if given.is_empty() => {}
                    Move::Renewed(index) => {
                        let rest = *index.get(&given);
                        let entry = list.iter_mut().find(|(token, _)| *token == rest);
                        prop_assert_eq!(resting.renewed(rest, rest).is_ok(), entry.is_some());
                        entry.into_iter().for_each(|(_, ready)| *ready = true);
                    }
                    Move::Take(index) => {
                        let rest = *index.get(&given);
                        let position = list.iter().position(|(token, _)| *token == rest);
                        let expected = position.map(|position| list.remove(position));
                        let taken = resting.take(rest).map(|entry| {
                            assert!(entry.wire.is_none_or(|wire| wire == rest), "somebody else's wire");
                            (entry.rest, entry.wire.is_some())
                        });
                        prop_assert_eq!(taken, expected);
                    }
                    Move::TakeOldest => {
                        let expected = (!list.is_empty()).then(|| list.remove(0));
                        let taken = resting.take_oldest();
                        prop_assert_eq!(taken.map(|entry| (entry.rest, entry.wire.is_some())), expected);
                    }
                }
                prop_assert_eq!(resting.ready(), list.iter().filter(|(_, ready)| *ready).count());
                prop_assert_eq!(resting.being_renewed() + resting.ready(), list.len());
                prop_assert!(list.len() <= RESTING_MAX);
            }
        }
    }
}

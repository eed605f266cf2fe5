//! Which slots are free, and which of those to hand out next. Pure.
//!
//! Slots never used come first, then those released longest ago: an address rests as long as it can before someone
//! else answers on it.

use std::collections::{HashSet, VecDeque};

use crate::address::Slot;

/// The free and the taken slots of one pool.
#[derive(Debug)]
pub(crate) struct SlotPool {
    capacity: u32,
    /// Slots from here on were never used, except those in `skipped`.
    fresh: u32,
    /// Slots in use or rested before the first hand-out; the walk through the fresh ones passes over them.
    skipped: HashSet<Slot>,
    /// Free again, oldest first.
    rested: VecDeque<Slot>,
    taken: HashSet<Slot>,
}

impl SlotPool {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, fresh: 0, skipped: HashSet::new(), rested: VecDeque::new(), taken: HashSet::new() }
    }

    /// Marks a slot as taken before the first hand-out. False if it is not in the pool or already taken.
    pub(crate) fn claim(&mut self, slot: Slot) -> bool {
        let free = slot.get() < self.capacity && self.skipped.insert(slot);
        free && self.taken.insert(slot)
    }

    /// Takes a free slot.
    pub(crate) fn take(&mut self) -> Option<Slot> {
        let slot = self.next_fresh().or_else(|| self.rested.pop_front())?;
        self.taken.insert(slot);
        Some(slot)
    }

    fn next_fresh(&mut self) -> Option<Slot> {
        while self.fresh < self.capacity {
            let slot = Slot::new(self.fresh);
            self.fresh += 1;
            if !self.skipped.remove(&slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Frees a taken slot; it goes to the end of the queue. False if it was not taken.
    pub(crate) fn give_back(&mut self, slot: Slot) -> bool {
        let taken = self.taken.remove(&slot);
        if taken {
            self.rested.push_back(slot);
        }
        taken
    }

    /// How many could be taken now.
    pub(crate) fn free(&self) -> u32 {
        self.capacity - u32::try_from(self.taken.len()).expect("no more are taken than the pool holds")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn recycles_least_recently_used_first() {
        let mut pool = SlotPool::new(3);
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all, [0, 1, 2].map(Slot::new));
        assert!(pool.give_back(Slot::new(2)) && pool.give_back(Slot::new(0)));
        assert_eq!(pool.take(), Some(Slot::new(2)));
        assert_eq!(pool.take(), Some(Slot::new(0)));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn a_claimed_slot_comes_back_last() {
        let mut pool = SlotPool::new(3);
        assert!(pool.claim(Slot::new(1)));
        assert!(!pool.claim(Slot::new(1)) && !pool.claim(Slot::new(3)));
        assert!(pool.give_back(Slot::new(1)));
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all, [0, 2, 1].map(Slot::new));
    }

    proptest! {
        #[test]
        fn never_hands_out_a_slot_twice(
            capacity in 1u32..40,
            claimed in proptest::collection::vec(0u32..50, 0..10),
            moves in proptest::collection::vec((any::<bool>(), 0u32..50), 0..200),
        ) {
            let mut pool = SlotPool::new(capacity);
            let mut held = HashSet::new();
            for number in claimed {
                let slot = Slot::new(number);
                prop_assert_eq!(pool.claim(slot), number < capacity && held.insert(slot));
            }
            for (take, number) in moves {
                if take {
                    match pool.take() {
                        Some(slot) => prop_assert!(slot.get() < capacity && held.insert(slot)),
                        None => prop_assert_eq!(held.len(), capacity as usize),
                    }
                } else {
                    prop_assert_eq!(pool.give_back(Slot::new(number)), held.remove(&Slot::new(number)));
                }
                prop_assert_eq!(pool.free() as usize, capacity as usize - held.len());
            }
        }
    }
}

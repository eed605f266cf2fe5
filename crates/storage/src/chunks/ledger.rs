//! Which chunks lie on the disk, and which of them was used least recently. Pure.

use std::collections::{BTreeMap, HashMap};

use memory::stream::Digest;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    kept: HashMap<Digest, Kept>,
    /// By the moment of their last use.
    uses: BTreeMap<u64, Digest>,
    bytes: u64,
    now: u64,
}

#[derive(Debug)]
struct Kept {
    bytes: u64,
    used: u64,
    verified: bool,
}

impl Ledger {
    /// Bytes of all together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long a chunk is, and whether it was verified since the start.
    pub(super) fn look(&self, digest: Digest) -> Option<(u64, bool)> {
        self.kept.get(&digest).map(|kept| (kept.bytes, kept.verified))
    }

    /// A chunk that was just written.
    pub(super) fn insert(&mut self, digest: Digest, bytes: u64) {
        self.put(digest, bytes, true);
    }

    /// A chunk that an earlier process wrote.
    pub(super) fn insert_unverified(&mut self, digest: Digest, bytes: u64) {
        self.put(digest, bytes, false);
    }

    fn put(&mut self, digest: Digest, bytes: u64, verified: bool) {
        self.remove(digest);
        self.now += 1;
        self.kept.insert(digest, Kept { bytes, used: self.now, verified });
        self.uses.insert(self.now, digest);
        self.bytes += bytes;
    }

    /// A chunk was read and found to be good.
    pub(super) fn used(&mut self, digest: Digest) {
        if let Some(kept) = self.kept.get_mut(&digest) {
            self.uses.remove(&kept.used);
            self.now += 1;
            (kept.used, kept.verified) = (self.now, true);
            self.uses.insert(self.now, digest);
        }
    }

    pub(super) fn remove(&mut self, digest: Digest) {
        if let Some(kept) = self.kept.remove(&digest) {
            self.uses.remove(&kept.used);
            self.bytes -= kept.bytes;
        }
    }

    /// The chunk that was used least recently.
    pub(super) fn oldest(&self) -> Option<Digest> {
        self.uses.first_key_value().map(|(_, digest)| *digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list(steps in prop::collection::vec((0..4_u8, 0..6_u8), 0..80)) {
            let mut ledger = Ledger::default();
            // In the order of use: name, bytes, verified.
            let mut list: Vec<(Digest, u64, bool)> = Vec::new();
            for (step, name) in steps {
                let (digest, bytes) = (Digest::of(&[name]), u64::from(name) * 10);
                let at = list.iter().position(|(known, ..)| *known == digest);
                match step {
                    0 | 1 => {
                        at.map(|at| list.remove(at));
                        list.push((digest, bytes, step == 0));
                        if step == 0 { ledger.insert(digest, bytes) } else { ledger.insert_unverified(digest, bytes) }
                    }
                    2 => {
                        if let Some(at) = at {
                            let (digest, bytes, _) = list.remove(at);
                            list.push((digest, bytes, true));
                        }
                        ledger.used(digest);
                    }
                    _ => {
                        at.map(|at| list.remove(at));
                        ledger.remove(digest);
                    }
                }
                prop_assert_eq!(ledger.bytes(), list.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
                prop_assert_eq!(ledger.oldest(), list.first().map(|(digest, ..)| *digest));
                for (digest, bytes, verified) in &list {
                    prop_assert_eq!(ledger.look(*digest), Some((*bytes, *verified)));
                }
                prop_assert_eq!(ledger.kept.len(), list.len());
            }
        }
    }
}

//! KeyedMutex: of those who want the same thing one does it at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One turn for each thing.
#[derive(Debug)]
pub(crate) struct KeyedMutex<K> {
    turns: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

impl<K> Default for KeyedMutex<K> {
    fn default() -> Self {
        Self { turns: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone> KeyedMutex<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<tokio::sync::Mutex<()>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn for this thing; whoever holds its lock has it.
    pub(crate) fn turn(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.lock().entry(key.clone()).or_default())
    }

    /// Forgets a thing that is gone, unless somebody waits for it.
    pub(crate) fn forget(&self, key: &K) {
        let mut turns = self.lock();
        if turns.get(key).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(key);
        }
    }
}

//! Who is using which sandbox, and when each was last used. In memory, written down now and then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::SandboxId;

use crate::clock::now_ms;

#[derive(Debug, Clone, Copy, Default)]
struct Use {
    users: u32,
    used_ms: i64,
    unwritten: bool,
}

/// When sandboxes were last used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity {
    uses: Arc<Mutex<HashMap<SandboxId, Use>>>,
}

/// A use that goes on until this is dropped: the sandbox is not idle meanwhile.
#[derive(Debug)]
pub(crate) struct Using {
    activity: Activity,
    id: SandboxId,
}

impl Activity {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns of a sandbox; what is known already stays.
    pub(crate) fn learn(&self, id: &SandboxId, used_ms: i64) {
        self.lock().entry(id.clone()).or_insert(Use { users: 0, used_ms, unwritten: false });
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.lock().remove(id);
    }

    /// Begins a use.
    pub(crate) fn begin(&self, id: &SandboxId) -> Using {
        let mut uses = self.lock();
        let entry = uses.entry(id.clone()).or_default();
        entry.users += 1;
        entry.used_ms = now_ms();
        entry.unwritten = true;
        Using { activity: self.clone(), id: id.clone() }
    }

    /// When it was last used: now, while somebody does.
    pub(crate) fn last_used_ms(&self, id: &SandboxId) -> Option<i64> {
        let known = self.lock().get(id).copied()?;
        Some(if known.users > 0 { now_ms() } else { known.used_ms })
    }

    /// What changed since this was last asked.
    pub(crate) fn take_unwritten(&self) -> Vec<(SandboxId, i64)> {
        let mut changed = Vec::new();
        for (id, known) in self.lock().iter_mut() {
            if std::mem::take(&mut known.unwritten) || known.users > 0 {
                changed.push((id.clone(), if known.users > 0 { now_ms() } else { known.used_ms }));
            }
        }
        changed
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        // One that was deleted meanwhile is not learned of again.
        if let Some(known) = self.activity.lock().get_mut(&self.id) {
            known.users = known.users.saturating_sub(1);
            known.used_ms = now_ms();
            known.unwritten = true;
        }
    }
}

//! Looks for sandboxes that have idled too long, and writes down when each was last used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::lifecycle::Phase;
use node::Sandbox;
use store::{ProvisionState, SandboxRow};

use crate::activity::Activity;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::ControlError;

/// How often last uses are written down: what a killed server forgets makes a sandbox live that much longer.
const WRITE_EVERY: Duration = Duration::from_secs(15);
/// How much longer the pause is than the look that went before it.
const PAUSE_FACTOR: u32 = 20;
/// What clients write on the children they explore with, and how long those may idle.
const EXPLORE: &str = "explore";
pub(crate) const EXPLORE_TTL: &str = "explore_ttl";

/// What becomes of an idle sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Sleeps,
    Goes,
}

fn fate(row: &SandboxRow, phase: Phase, idle_ms: i64) -> Fate {
    if row.standing != ProvisionState::Live {
        return Fate::Stays;
    }
    if explore_ttl(row).is_some_and(|seconds| idle_ms >= ms(seconds)) {
        return Fate::Goes;
    }
    if idle_ms < ms(row.ttl_seconds) {
        return Fate::Stays;
    }
    match (phase, row.persistent) {
        // Somebody put it to sleep and it costs nothing but disk.
        (Phase::Hibernated, _) => Fate::Stays,
        (Phase::Running | Phase::Paused, true) => Fate::Sleeps,
        (Phase::Running | Phase::Paused, false) | (Phase::Died, false) => Fate::Goes,
        _ => Fate::Stays,
    }
}

/// How long a child may idle that a client explores with.
fn explore_ttl(row: &SandboxRow) -> Option<u64> {
    let exploring = row.metadata.get(EXPLORE).is_some_and(|value| value == "1");
    row.metadata.get(EXPLORE_TTL).and_then(|text| text.parse().ok()).filter(|_| exploring)
}

/// Seconds until an idle sandbox sleeps or goes; none when it sleeps or stays as it is.
pub(crate) fn idle_seconds_left(activity: &Activity, row: &SandboxRow, phase: Phase) -> Option<u64> {
    let acts = match phase {
        Phase::Running | Phase::Paused => true,
        Phase::Died => !row.persistent,
        _ => false,
    };
    if !acts || row.standing != ProvisionState::Live {
        return None;
    }
    let used_ms = activity.last_used_ms(&row.id).unwrap_or(row.used_ms);
    let limit = explore_ttl(row).map_or(row.ttl_seconds, |explore| explore.min(row.ttl_seconds));
    Some(left(limit, now_ms() - used_ms))
}

fn left(ttl_seconds: u64, idle_ms: i64) -> u64 {
    let left_ms = ms(ttl_seconds).saturating_sub(idle_ms.max(0)).max(0);
    u64::try_from(left_ms).unwrap_or_default().div_ceil(1000)
}

fn fate_of(activity: &Activity, row: &SandboxRow, sandbox: &Sandbox) -> Fate {
    let used_ms = activity.last_used_ms(&row.id).unwrap_or(row.used_ms);
    let phase = sandbox.watch().borrow().record.phase;
    fate(row, phase, now_ms() - used_ms)
}

fn ms(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000)
}

/// Runs until the server goes down.
pub(crate) async fn run(control: Control) {
    let mut since_written = Duration::ZERO;
    let mut pause = control.config().reap_every;
    loop {
        tokio::select! {
            () = control.closing().cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        since_written += pause;
        if since_written >= WRITE_EVERY {
            since_written = Duration::ZERO;
            control.write_activity().await;
        }
        let started = Instant::now();
        if let Err(error) = control.reap().await {
            tracing::error!(?error, "idle sandboxes could not be looked for");
        }
        // However many there are, looking costs a small share of the time.
        pause = control.config().reap_every.max(started.elapsed() * PAUSE_FACTOR);
    }
}

impl Control {
    pub(crate) async fn write_activity(&self) {
        let used = self.activity().take_unwritten();
        if used.is_empty() {
            return;
        }
        if let Err(error) = self.store().touch_sandboxes(used).await {
            tracing::warn!(%error, "last uses of sandboxes were not written down");
        }
    }

    async fn reap(&self) -> Result<(), ControlError> {
        let met = Arc::new(Mutex::new(Vec::new()));
        let (node, activity, meets) = (self.node().clone(), self.activity().clone(), Arc::clone(&met));
        // Most stay: only those that do not are held in memory.
        let visit = move |row: SandboxRow| {
            let Ok(sandbox) = node.sandbox(&row.id) else { return };
            if fate_of(&activity, &row, &sandbox) != Fate::Stays {
                meets.lock().unwrap_or_else(PoisonError::into_inner).push((row, sandbox));
            }
        };
        self.store().visit_sandboxes(None, Box::new(visit)).await?;
        let met = std::mem::take(&mut *met.lock().unwrap_or_else(PoisonError::into_inner));
        for (row, sandbox) in met {
            // Looked at again: it may have been used since.
            let outcome = match fate_of(self.activity(), &row, &sandbox) {
                Fate::Stays => continue,
                Fate::Sleeps => self.sleep(&row, &sandbox).await,
                Fate::Goes => self.remove(&row, "sandbox.deleted").await,
            };
            if let Err(error) = outcome {
                tracing::warn!(?error, sandbox.id = %row.id, "an idle sandbox could not be put away");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::{SandboxId, TenantId};
    use store::NetworkMode;

    use super::*;

    fn row(ttl_seconds: u64, persistent: bool, metadata: &[(&str, &str)]) -> SandboxRow {
        SandboxRow {
            id: SandboxId::from_random([1; 16]),
            tenant: TenantId::from_random([2; 16]),
            standing: ProvisionState::Live,
            template: "base".to_owned(),
            from_snapshot: None,
            name: None,
            parent: None,
            ancestors: Vec::new(),
            tree: None,
            fork_index: None,
            metadata: metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            env: BTreeMap::new(),
            ports: BTreeMap::new(),
            ttl_seconds,
            persistent,
            network: NetworkMode::None,
            volumes: Vec::new(),
            cpus: 1,
            memory_mib: 256,
            created_ms: 0,
            used_ms: 0,
            boot_ms: None,
            boot_mode: String::new(),
            timings: None,
        }
    }

    #[test]
    fn what_is_left_counts_down_to_nothing() {
        for (ttl, idle_ms, expected) in
            [(10, 0, 10), (10, 1, 10), (10, 9_000, 1), (10, 10_000, 0), (10, 99_000, 0), (10, -5, 10)]
        {
            assert_eq!(left(ttl, idle_ms), expected, "{ttl} {idle_ms}");
        }
        let activity = Activity::default();
        let mut sandbox = row(1 << 40, false, &[("explore", "1"), ("explore_ttl", "5")]);
        sandbox.used_ms = now_ms();
        assert_eq!(idle_seconds_left(&activity, &sandbox, Phase::Running), Some(5));
        assert_eq!(idle_seconds_left(&activity, &sandbox, Phase::Hibernated), None);
    }

    #[test]
    fn idle_sandboxes_meet_their_fate() {
        let explored = [("explore", "1"), ("explore_ttl", "5")];
        let cases = [
            (row(10, false, &[]), Phase::Running, 9_999, Fate::Stays),
            (row(10, false, &[]), Phase::Running, 10_000, Fate::Goes),
            (row(10, true, &[]), Phase::Running, 10_000, Fate::Sleeps),
            (row(10, true, &[]), Phase::Paused, 10_000, Fate::Sleeps),
            (row(10, false, &[]), Phase::Hibernated, 10_000, Fate::Stays),
            (row(10, true, &[]), Phase::Died, 10_000, Fate::Stays),
            (row(10, false, &[]), Phase::Died, 10_000, Fate::Goes),
            (row(10, false, &[]), Phase::Hibernating, 10_000, Fate::Stays),
            (row(10, true, &explored), Phase::Running, 5_000, Fate::Goes),
            (row(10, false, &[("explore_ttl", "5")]), Phase::Running, 5_000, Fate::Stays),
            (row(u64::MAX, false, &[]), Phase::Running, i64::MAX - 1, Fate::Stays),
        ];
        for (row, phase, idle_ms, expected) in cases {
            assert_eq!(fate(&row, phase, idle_ms), expected, "{phase:?} {idle_ms}");
        }
    }
}

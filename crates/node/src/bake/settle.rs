//! Waits until a guest that is about to be saved has nothing left to do: whatever is under way in a template, every sandbox made
//! from it would finish again, before its first answer.

use std::time::{Duration, Instant};

use machine::Vm;

use crate::error::NodeError;

/// A guest that has used no more than a fiftieth of this time is idle.
const SETTLE_WINDOW: Duration = Duration::from_millis(300);
const IDLE_SHARE: u32 = 50;
/// A guest that never rests, because of what its warm-up started, is saved as it is.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A guest's kernel gives free memory back in turns that are two seconds apart. One that has nothing left gives none in this time.
const GIVING_WINDOW: Duration = Duration::from_secs(3);
/// All of it takes such a kernel about half a minute, if there is much.
const GIVING_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until the guest has given back all memory that it has free.
pub(super) async fn give_back(vm: &dyn Vm) -> Result<(), NodeError> {
    let given = async || {
        let counters = vm.counters().await?;
        Ok::<_, NodeError>(counters.and_then(|counters| counters.given_back_bytes))
    };
    let patient_until = Instant::now() + GIVING_TIMEOUT;
    let mut before = given().await?;
    loop {
        tokio::time::sleep(GIVING_WINDOW).await;
        let after = given().await?;
        if after == before || Instant::now() >= patient_until {
            return Ok(());
        }
        before = after;
    }
}

/// Waits until the guest has nothing left to do: every sandbox would do it again.
pub(super) async fn settle(pid: u32) -> Result<(), NodeError> {
    let patient_until = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let before = cpu_time(pid).map_err(NodeError::host("tell a machine's CPU time"))?;
        tokio::time::sleep(SETTLE_WINDOW).await;
        let after = cpu_time(pid).map_err(NodeError::host("tell a machine's CPU time"))?;
        // A thread that ended meanwhile took its time along.
        let used = after.saturating_sub(before);
        if used * IDLE_SHARE <= SETTLE_WINDOW || Instant::now() >= patient_until {
            return Ok(());
        }
    }
}

/// CPU time of all of a process's threads.
fn cpu_time(pid: u32) -> std::io::Result<Duration> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that ends while we look uses no more.
        let Ok(schedule) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let running = schedule.split_ascii_whitespace().next().unwrap_or("0");
        nanoseconds += running.parse::<u64>().map_err(std::io::Error::other)?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

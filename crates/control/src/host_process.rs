//! What a machine's process costs the host, read from `/proc`.

use contract::operation::{DeviceMetrics, GuestMetrics, SandboxMetrics};
use node::Counters;

use crate::caller::Caller;
use crate::control::Control;
use crate::error::{ControlError, Kind};

/// The kernel's unit of CPU time in `/proc`, on every Linux we run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// A page on every host we run on.
const PAGE_BYTES: u64 = 4096;

fn read(pid: u32) -> Option<SandboxMetrics> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; fields are counted from behind it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let lived = (uptime - number(19)? / TICKS_PER_SECOND).max(0.001);
    let cpu = (number(11)? + number(12)?) / TICKS_PER_SECOND;
    Some(SandboxMetrics {
        pid,
        uptime_seconds: lived,
        host_cpu_percent: cpu / lived * 100.0,
        host_rss_bytes: (number(21)? as u64).saturating_mul(PAGE_BYTES),
        host_vsz_bytes: number(20)? as u64,
        threads: number(17)? as u32,
        guest: None,
        devices: None,
    })
}

impl Control {
    /// What a sandbox costs its host, and what its guest sees. Does not wake it.
    pub async fn sandbox_metrics(&self, caller: &Caller, id: &str) -> Result<SandboxMetrics, ControlError> {
        let row = self.row(caller, id).await?;
        let sandbox = self.node().sandbox(&row.id)?;
        let state = sandbox.state();
        let Some(mut metrics) = state.record.vm.as_ref().and_then(|vm| read(vm.process.pid)) else {
            let asleep = ControlError::new(
                Kind::Conflict,
                "the sandbox has no machine: it sleeps or its machine ended",
            );
            return Err(asleep.hint("wake it first"));
        };
        if let Some(link) = state.link.filter(|link| !link.is_closed())
            && let Ok(Ok(guest)) =
                tokio::time::timeout(std::time::Duration::from_secs(2), link.metrics()).await
        {
            metrics.guest = Some(GuestMetrics {
                cpus: guest.cpu.count,
                cpu_busy_us: guest.cpu.busy_us,
                cpu_total_us: guest.cpu.total_us,
                memory_total_bytes: guest.memory.total,
                memory_available_bytes: guest.memory.available,
                disk_total_bytes: guest.disk.total,
                disk_used_bytes: guest.disk.used,
                tasks: guest.tasks,
            });
        }
        metrics.devices = sandbox.counters().await.map(devices);
        Ok(metrics)
    }
}

fn devices(counters: Counters) -> DeviceMetrics {
    DeviceMetrics {
        disk_read_bytes: counters.disk_read_bytes,
        disk_written_bytes: counters.disk_written_bytes,
        disk_reads: counters.disk_reads,
        disk_writes: counters.disk_writes,
        disk_throttled: counters.disk_throttled,
        network_received_bytes: counters.network_received_bytes,
        network_sent_bytes: counters.network_sent_bytes,
        network_throttled: counters.network_throttled,
        memory_given_back_bytes: counters.given_back_bytes,
    }
}

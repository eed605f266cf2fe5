//! Load, from `/proc` and the root file system.

use std::fs;
use std::io;
use std::mem::MaybeUninit;

use guest_link::message::{Cpu, Disk, Memory, Metrics};

use crate::kernel::{self, check};

/// Microseconds of the unit in which `/proc/stat` counts.
const TICK_US: u64 = 10_000;

pub(crate) fn measure() -> io::Result<Metrics> {
    let load = fs::read_to_string("/proc/loadavg")?;
    let mut load = load.split_ascii_whitespace();
    let load_1m_milli =
        load.next().and_then(|load| load.parse::<f64>().ok()).map_or(0, |load| (load * 1000.0) as u32);
    let tasks = load
        .nth(2)
        .and_then(|tasks| tasks.split_once('/'))
        .and_then(|(_, all)| all.parse().ok())
        .unwrap_or(0);
    Ok(Metrics {
        cpu: Cpu { load_1m_milli, ..cpu(&fs::read_to_string("/proc/stat")?) },
        memory: memory(&fs::read_to_string("/proc/meminfo")?),
        disk: disk()?,
        uptime_ns: kernel::monotonic_ns(),
        unix_time_ns: kernel::unix_ns(),
        tasks,
    })
}

fn cpu(stat: &str) -> Cpu {
    let count =
        stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as u32;
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let times: Vec<u64> =
        all.split_ascii_whitespace().take(8).map(|time| time.parse().unwrap_or(0)).collect();
    let total: u64 = times.iter().sum();
    let idle: u64 = times.iter().skip(3).take(2).sum();
    Cpu { count, total_us: total * TICK_US, busy_us: (total - idle) * TICK_US, load_1m_milli: 0 }
}

fn memory(meminfo: &str) -> Memory {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Memory {
        total: field("MemTotal:"),
        available: field("MemAvailable:"),
        free: field("MemFree:"),
        cached: field("Cached:"),
    }
}

/// Memory of the machine in bytes.
pub(crate) fn memory_total() -> u64 {
    fs::read_to_string("/proc/meminfo").map_or(0, |text| memory(&text).total)
}

fn disk() -> io::Result<Disk> {
    let mut status = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is a C string and the kernel fills the structure.
    let status = unsafe {
        check(libc::statvfs(c"/".as_ptr(), status.as_mut_ptr()))?;
        status.assume_init()
    };
    let bytes = |blocks: u64| blocks.saturating_mul(status.f_frsize);
    Ok(Disk {
        total: bytes(status.f_blocks),
        used: bytes(status.f_blocks.saturating_sub(status.f_bfree)),
        free: bytes(status.f_bavail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let got = cpu(
            "cpu  10 1 4 80 5 0 0 0 7 0\ncpu0 5 1 2 40 5 0 0 0 0 0\ncpu1 5 0 2 40 0 0 0 0 0 0\nintr 1 2\n",
        );
        assert_eq!((got.count, got.total_us, got.busy_us), (2, 1_000_000, 150_000));
        let got = memory(
            "MemTotal:     100 kB\nMemFree:  7 kB\nMemAvailable: 50 kB\nBuffers: 1 kB\nCached: 9 kB\n",
        );
        assert_eq!((got.total, got.available, got.free, got.cached), (102_400, 51_200, 7168, 9216));
        let real = measure().expect("this machine has /proc");
        assert!(real.cpu.count > 0 && real.memory.total > 0 && real.disk.total > 0 && real.tasks > 0);
    }
}

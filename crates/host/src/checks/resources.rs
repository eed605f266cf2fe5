//! Is there enough disk, memory and processor?

use std::path::Path;

use crate::check::{Check, Status, Subject};
use crate::facts::{host_memory, nearest_existing};

const DISK: Subject = Subject { name: "disk", title: "Free disk for the data directory" };
const MEMORY: Subject = Subject { name: "memory", title: "Free memory" };
const PROCESSORS: Subject = Subject { name: "processors", title: "Processors" };

const GIB: u64 = 1 << 30;
/// Room for a few templates and their snapshots.
const DISK_WARNING_BYTES: u64 = 20 * GIB;
/// Less does not hold one template, its build and its snapshot.
const DISK_PROBLEM_BYTES: u64 = 5 * GIB;
const MEMORY_WARNING_BYTES: u64 = 2 * GIB;
/// Less does not hold one small machine and the build of its image.
const MEMORY_PROBLEM_BYTES: u64 = GIB / 2;

pub(super) fn disk(data_directory: &Path) -> Check {
    let directory = nearest_existing(data_directory);
    let free = match rustix::fs::statvfs(&directory) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => return DISK.not_tried(format!("{} could not be asked: {error}", directory.display())),
    };
    let detail = format!("{} free on {}", gib(free), directory.display());
    let fix = format!("du -xh --max-depth=2 {} | sort -h | tail -20", directory.display());
    match free {
        ..DISK_PROBLEM_BYTES => DISK.problem(detail + ", at least 5 GiB are needed", fix),
        DISK_PROBLEM_BYTES..DISK_WARNING_BYTES => DISK.warning(detail + ", 20 GiB or more are better", fix),
        _ => DISK.ok(detail),
    }
}

pub(super) fn memory() -> Check {
    let (total, available) = host_memory();
    let detail = format!("{} of {} available", gib(available), gib(total));
    let fix = "ps -eo pid,rss,comm --sort=-rss | head -20";
    match available {
        _ if total == 0 => MEMORY.not_tried("/proc/meminfo could not be understood"),
        ..MEMORY_PROBLEM_BYTES => MEMORY.problem(detail + ", at least 512 MiB are needed", fix),
        MEMORY_PROBLEM_BYTES..MEMORY_WARNING_BYTES => {
            MEMORY.warning(detail + ", 2 GiB or more are better", fix)
        }
        _ => MEMORY.ok(detail),
    }
}

pub(super) fn processors() -> Check {
    match std::thread::available_parallelism() {
        Ok(count) if count.get() == 1 => {
            PROCESSORS.check(Status::Warning, "1 usable: machines will wait for each other", None)
        }
        Ok(count) => PROCESSORS.ok(format!("{count} usable")),
        Err(error) => PROCESSORS.not_tried(format!("the kernel did not say: {error}")),
    }
}

fn gib(bytes: u64) -> String {
    format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(gib(5 * GIB + GIB / 2), "5.5 GiB");
        assert_eq!(gib(0), "0.0 GiB");
    }
}

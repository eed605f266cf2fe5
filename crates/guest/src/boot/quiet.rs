//! Switches off what the kernel does from time to time for machines larger and longer-lived than a sandbox. An idle guest wakes up
//! less often, and a restored one finds nothing due that delays its first answer.

use std::fs;
use std::io;

/// Knobs and what they are set to. A kernel that lacks one has nothing to switch off.
const KNOBS: [(&str, &str); 5] = [
    // Looks for fragmented memory twice a second.
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    // Folds statistics every second; whoever reads them folds them first.
    ("/proc/sys/vm/stat_interval", "60"),
    // Looks for hung tasks and locked-up processors: there is nobody to tell.
    ("/proc/sys/kernel/hung_task_timeout_secs", "0"),
    ("/proc/sys/kernel/watchdog", "0"),
    // Measures a disk's latency in order to hold writers back; the host's disk has its own ways.
    ("/sys/block/vda/queue/wbt_lat_usec", "0"),
];

pub(super) fn settle() -> io::Result<()> {
    for (knob, value) in KNOBS {
        match fs::write(knob, value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

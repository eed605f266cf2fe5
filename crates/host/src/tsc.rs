//! The frequency of the time-stamp counter, which guests under emulation must be told.
//!
//! A guest that calibrates the counter itself fails on a busy host, so its kernel gets the number as an argument;
//! it has to be the same from one start to the next. The kernel's own figure is best, then the processor's, then
//! a measurement.
#![allow(unsafe_code)]

use std::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// How long a measurement takes.
const MEASUREMENT: Duration = Duration::from_millis(50);
/// Readings taken at each end of a measurement; the least disturbed one counts.
const READINGS: usize = 32;
/// Most of the kernel's log that is looked through.
const KERNEL_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Frequencies outside of this are misreadings (0.1 to 20 GHz).
const PLAUSIBLE_KHZ: std::ops::RangeInclusive<u64> = 100_000..=20_000_000;

/// Frequency of the time-stamp counter and where it was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tsc {
    /// Ticks per millisecond.
    pub khz: u64,
    /// Who said so.
    pub source: TscSource,
}

/// Who knows the frequency of the time-stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TscSource {
    /// A file of the kernel's.
    Sysfs,
    /// The kernel's log of its start.
    KernelLog,
    /// The processor's or the hypervisor's CPUID leaf.
    Cpuid,
    /// Measured against the kernel's raw clock.
    Measured,
}

/// The frequency of the time-stamp counter, from the best source this host offers.
pub fn tsc_khz() -> Tsc {
    let known = [
        (TscSource::Sysfs, from_sysfs as fn() -> Option<u64>),
        (TscSource::KernelLog, from_kernel_log),
        (TscSource::Cpuid, from_cpuid),
    ];
    known
        .into_iter()
        .filter_map(|(source, ask)| ask().map(|khz| Tsc { khz, source }))
        .find(|tsc| PLAUSIBLE_KHZ.contains(&tsc.khz))
        .unwrap_or_else(|| Tsc { khz: measure_khz(), source: TscSource::Measured })
}

fn from_sysfs() -> Option<u64> {
    std::fs::read_to_string("/sys/devices/system/cpu/cpu0/tsc_freq_khz").ok()?.trim().parse().ok()
}

fn from_kernel_log() -> Option<u64> {
    const READ_ALL: libc::c_int = 3;
    const SIZE_BUFFER: libc::c_int = 10;
    // SAFETY: asking for the size passes no buffer.
    let size = unsafe { libc::klogctl(SIZE_BUFFER, std::ptr::null_mut(), 0) };
    let size = usize::try_from(size).ok()?.min(KERNEL_LOG_BYTES_MAX);
    let mut log = vec![0u8; size];
    // SAFETY: the buffer is `size` bytes long and the kernel writes no more than that.
    let read = unsafe { libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), size as libc::c_int) };
    log.truncate(usize::try_from(read).ok()?);
    parse_kernel_log(&String::from_utf8_lossy(&log))
}

/// The refined figure if the kernel has one, else the first one it detected.
fn parse_kernel_log(log: &str) -> Option<u64> {
    let after = |mark: &str| {
        let line = log.lines().find_map(|line| line.split_once(mark))?.1;
        mhz_to_khz(line.split_whitespace().next()?)
    };
    after("tsc: Refined TSC clocksource calibration: ").or_else(|| after("tsc: Detected "))
}

/// `2793.436` → 2793436. The kernel prints three decimals.
fn mhz_to_khz(mhz: &str) -> Option<u64> {
    let (whole, fraction) = mhz.split_once('.')?;
    if fraction.len() != 3 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction.parse().ok()?)
}

fn from_cpuid() -> Option<u64> {
    let leaf_max = __cpuid(0).eax;
    if leaf_max >= 0x15 {
        let leaf = __cpuid_count(0x15, 0);
        if leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0 {
            return Some(u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax) / 1000);
        }
    }
    // Hypervisors publish it in a leaf of their own.
    let inside_a_vm = __cpuid(1).ecx & (1 << 31) != 0;
    if inside_a_vm && (0x4000_0010..0x4000_0100).contains(&__cpuid(0x4000_0000).eax) {
        return Some(u64::from(__cpuid(0x4000_0010).eax)).filter(|khz| *khz != 0);
    }
    None
}

/// Counts ticks against the kernel's raw clock for [`MEASUREMENT`].
pub(crate) fn measure_khz() -> u64 {
    let (ticks_before, nanos_before) = reading();
    std::thread::sleep(MEASUREMENT);
    let (ticks_after, nanos_after) = reading();
    let ticks = u128::from(ticks_after.wrapping_sub(ticks_before));
    let nanos = u128::from(nanos_after.saturating_sub(nanos_before)).max(1);
    u64::try_from(ticks * 1_000_000 / nanos).unwrap_or(u64::MAX)
}

/// Counter and clock at one instant: of several tries the one in which reading the clock took least.
fn reading() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..READINGS {
        // SAFETY: every x86-64 processor has the instruction; it touches no memory.
        let before = unsafe { _rdtsc() };
        let clock = clock_gettime(ClockId::MonotonicRaw);
        // SAFETY: as above.
        let after = unsafe { _rdtsc() };
        let width = after.wrapping_sub(before);
        if width < best.0 {
            let nanos = clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64;
            best = (width, before + width / 2, nanos);
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_logs_are_parsed() {
        let detected = "<6>[    0.000042] tsc: Detected 2793.436 MHz processor\n";
        assert_eq!(parse_kernel_log(detected), Some(2_793_436));
        let refined = format!("{detected}<6>[ 1.2] tsc: Refined TSC clocksource calibration: 2793.500 MHz\n");
        assert_eq!(parse_kernel_log(&refined), Some(2_793_500));
        for bad in
            ["", "tsc: Detected", "tsc: Detected x.yyy MHz", "tsc: Detected 99999999999999999999.000 MHz"]
        {
            assert_eq!(parse_kernel_log(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_frequency_is_the_same_every_time_and_agrees_with_a_measurement() {
        let within = |a: u64, b: u64| a.abs_diff(b) * 1000 <= a.max(b);
        let first = tsc_khz();
        assert!(within(first.khz, tsc_khz().khz));
        let measured: Vec<u64> = (0..3).map(|_| measure_khz()).collect();
        for one in &measured {
            assert!(within(measured[0], *one), "measurements differ: {measured:?}");
            assert!(within(first.khz, *one), "{first:?} against {measured:?}");
        }
    }
}

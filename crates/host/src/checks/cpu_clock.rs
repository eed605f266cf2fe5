//! Is the time-stamp counter steady, and does it run at the frequency that guests will be told?

use crate::check::{Check, Status, Subject};
use crate::cpu::cpu_identity;
use crate::tsc::{measure_khz, tsc_khz};

const TSC: Subject = Subject { name: "tsc", title: "Time-stamp counter" };
/// One part in this many is the most that told and measured frequency may differ.
const TOLERANCE_DIVISOR: u64 = 500;

pub(super) fn check() -> Check {
    let told = tsc_khz();
    let measured = measure_khz();
    let steady = cpu_identity().is_ok_and(|cpu| cpu.flags.contains("constant_tsc"));
    let (mhz, khz) = (told.khz / 1000, told.khz % 1000);
    if told.khz.abs_diff(measured) > told.khz / TOLERANCE_DIVISOR {
        let detail =
            format!("the host says {} kHz ({:?}), measured were {measured} kHz", told.khz, told.source);
        TSC.warning(detail, "reboot")
    } else if !steady {
        let detail =
            format!("{mhz}.{khz:03} MHz, but the processor does not promise a constant rate (constant_tsc)");
        TSC.check(Status::Warning, detail, None)
    } else {
        TSC.ok(format!("{mhz}.{khz:03} MHz, confirmed by measuring"))
    }
}

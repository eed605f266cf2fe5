//! Are pages of 2 MiB set aside for machines that are to have their memory in them?

use std::path::Path;

use super::NEWER_KERNEL;
use crate::check::{Check, Subject};
use crate::engine::Engine;
use crate::facts::kernel_text;

const HUGE_PAGES: Subject = Subject { name: "huge_pages", title: "Memory in pages of 2 MiB" };
const COUNTS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// What the largest machine of the catalogue takes, and one in which a template is built: 2 GiB.
const FREE_MIN: u64 = 1024;

/// For a host whose machines are to have them.
pub(crate) fn check(engine: Engine) -> Check {
    if engine != Engine::Firecracker {
        return HUGE_PAGES
            .problem("machines run by QEMU have none: nothing starts", "set the huge pages to `off`");
    }
    if !Path::new("/dev/userfaultfd").exists() {
        let detail = "such memory has to come on demand, and this kernel has no /dev/userfaultfd";
        return HUGE_PAGES.problem(detail, NEWER_KERNEL);
    }
    judge(|name| kernel_text(Path::new(COUNTS).join(name)).trim().parse().unwrap_or(0))
}

fn judge(count: impl Fn(&str) -> u64) -> Check {
    let more = count("nr_overcommit_hugepages").saturating_sub(count("surplus_hugepages"));
    let free = count("free_hugepages").saturating_sub(count("resv_hugepages")) + more;
    let all = count("nr_hugepages");
    let detail =
        format!("{free} of {all} are free: {} MiB for machines that are started from now on", 2 * free);
    let fix = || format!("sysctl -w vm.nr_hugepages={}", all + FREE_MIN.saturating_sub(free));
    match free {
        0 if all == 0 => HUGE_PAGES.problem("none are set aside: no machine can start", fix()),
        free if free < FREE_MIN => HUGE_PAGES.warning(detail, fix()),
        _ => HUGE_PAGES.ok(detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;
    use crate::engine::Accelerator;

    #[test]
    fn too_few_are_told_of_with_what_mends_it() {
        let judged = |all: u64, free: u64, overcommit: u64| {
            let count = move |name: &str| match name {
                "nr_hugepages" => all,
                "free_hugepages" => free,
                "nr_overcommit_hugepages" => overcommit,
                _ => 0,
            };
            let check = judge(count);
            (check.status, check.fix)
        };
        let fix = |count: u64| Some(format!("sysctl -w vm.nr_hugepages={count}"));
        assert_eq!(judged(0, 0, 0), (Status::Problem, fix(1024)));
        assert_eq!(judged(2000, 24, 0), (Status::Warning, fix(3000)));
        assert_eq!(judged(2000, 0, 0), (Status::Warning, fix(3024)));
        assert_eq!(judged(2000, 1024, 0), (Status::Ok, None));
        assert_eq!(judged(0, 0, 4096), (Status::Ok, None));
    }

    #[test]
    fn qemu_has_none() {
        let check = check(Engine::Qemu { accel: Accelerator::Kvm });
        assert_eq!(check.status, Status::Problem);
    }
}

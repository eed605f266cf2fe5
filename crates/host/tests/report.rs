//! The whole examination on this host, and on hosts that lack things.

use std::path::Path;

use host::{
    Accelerator, Check, Deadlines, Engine, EngineSetting, FirecrackerFound, Freshness, Programs, Report,
    Settings, Status, Style, Virtualization, examine, render_human,
};

fn settings(directory: &Path) -> Settings {
    Settings {
        data_directory: directory.join("not/yet/made"),
        programs: Programs::default(),
        engine: EngineSetting::Auto,
        firecracker: FirecrackerFound::Missing,
        probe_cache: Some(directory.join("probe.json")),
        freshness: Freshness::UseCache,
        deadlines: Deadlines::default(),
        guest_kernel: None,
        huge_pages: false,
    }
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    report.checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check `{name}`"))
}

#[test]
fn this_host_is_examined_and_nothing_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    let report = examine(&settings(directory.path()));
    println!("examined in {:?}", started.elapsed());
    println!("{}", render_human(&report, Style { color: false }));
    for found in &report.checks {
        assert!(found.fix.is_some() || found.status != Status::Problem, "{found:?}");
        assert!(found.fix.is_none() || found.status != Status::Ok, "{found:?}");
        assert!(!found.detail.is_empty(), "{found:?}");
    }
    let mut names: Vec<&str> = report.checks.iter().map(|check| check.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), report.checks.len(), "names are unique");
    for works in ["root", "qemu", "firmware", "reflink", "namespaces", "tap", "veth", "nftables", "seccomp"] {
        assert_eq!(check(&report, works).status, Status::Ok, "{:?}", check(&report, works));
    }
    assert_eq!(report.ok, report.checks.iter().all(|check| check.status != Status::Problem));
    assert!(report.engine.works);
    let kvm = report.engine.engine == Engine::Qemu { accel: Accelerator::Kvm };
    assert_eq!(report.engine.security_boundary, kvm);
    assert_eq!(kvm, report.probe.as_ref().unwrap().kvm.passed());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()), "{mounts}");
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "probe.json"), "{left:?}");
    serde_json::to_string(&report).unwrap();
}

#[test]
fn a_host_without_programs_has_problems_and_each_has_a_fix() {
    let directory = tempfile::tempdir().unwrap();
    let bare = directory.path().join("bin");
    std::fs::create_dir(&bare).unwrap();
    let programs = Programs { search: vec![bare], ..Programs::default() };
    let report = examine(&Settings { programs, ..settings(directory.path()) });
    assert!(!report.ok);
    assert_eq!(report.virtualization.kind, Virtualization::NotTried);
    assert!(report.probe.is_none());
    assert!(!report.engine.works);
    let missing = ["mmdebstrap", "mkfs_xfs", "mke2fs", "nft", "ip", "dpkg_deb", "apt_get", "qemu", "engine"];
    for name in missing.into_iter().chain(["guest_kernel", "namespaces"]) {
        let found = check(&report, name);
        assert_eq!(found.status, Status::Problem, "{found:?}");
        assert!(found.fix.is_some(), "{found:?}");
    }
    for untried in ["firmware", "veth", "nftables"] {
        assert_eq!(check(&report, untried).status, Status::NotTried);
    }
    assert_eq!(check(&report, "mke2fs").fix.as_deref(), Some("apt-get install -y e2fsprogs"));
}

#[test]
fn an_old_qemu_is_a_problem() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("qemu");
    std::fs::write(&old, "#!/bin/sh\necho 'QEMU emulator version 7.2.1 (old)'\n").unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let programs = Programs { qemu: Some(old), ..Programs::default() };
    let report = examine(&Settings { programs, ..settings(directory.path()) });
    let found = check(&report, "qemu");
    assert_eq!(found.status, Status::Problem);
    assert!(found.detail.contains("7.2.1") && found.detail.contains("8.2"), "{found:?}");
    assert!(!report.engine.works, "its guest never answered");
    assert!(!directory.path().join("probe.json").exists(), "such a result is not kept");
}

#[test]
fn a_setting_forces_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let auto = examine(&settings(directory.path()));
    let kvm_works = auto.probe.as_ref().unwrap().kvm.passed();
    for (setting, accel, works) in [
        (EngineSetting::QemuTcg, Accelerator::Tcg, true),
        (EngineSetting::QemuKvm, Accelerator::Kvm, kvm_works),
    ] {
        let report = examine(&Settings { engine: setting, ..settings(directory.path()) });
        assert_eq!(report.engine.engine, Engine::Qemu { accel });
        assert!(report.engine.forced);
        assert_eq!(report.engine.works, works);
        assert_eq!(check(&report, "engine").status == Status::Problem, !works);
    }
}

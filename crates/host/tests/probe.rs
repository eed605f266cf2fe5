//! The probe against the real QEMU of this host. What it must find follows from facts read independently here, so the
//! same test holds on hardware KVM, on software virtualization and without either.

use std::path::Path;

use host::{
    BootOutcome, Deadlines, Freshness, KvmDevice, ProbeSettings, Programs, Virtualization, classify, probe,
};

fn settings(cache: Option<&Path>) -> ProbeSettings {
    ProbeSettings {
        programs: Programs::default(),
        cache: cache.map(Path::to_owned),
        freshness: Freshness::UseCache,
        deadlines: Deadlines::default(),
        guest_kernel: None,
    }
}

#[test]
fn what_is_claimed_is_what_a_guest_proved() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("probe.json");
    let first = probe(&settings(Some(&cache))).unwrap();
    assert!(!first.from_cache);
    println!("kvm: {:?}\ntcg: {:?}", first.probe.kvm, first.probe.tcg);
    assert_eq!(first.probe.tcg.outcome, BootOutcome::Passed, "TCG needs nothing from the host");

    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap();
    let hardware = flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
    let device = Path::new("/dev/kvm").exists();
    let finding = classify(&first.probe);
    println!("{:?}: {}", finding.kind, finding.reason);
    if !device {
        assert_eq!(finding.kind, Virtualization::None);
        assert_eq!(first.probe.device, KvmDevice::Absent);
        assert_eq!(first.probe.kvm.outcome, BootOutcome::NotTried);
    } else if !hardware {
        assert_ne!(finding.kind, Virtualization::HardwareKvm);
        let pvm = Path::new("/sys/module/kvm_pvm").exists();
        assert_eq!(finding.kind == Virtualization::Pvm, pvm || first.probe.kvm.passed());
    } else {
        assert_eq!(finding.kind == Virtualization::HardwareKvm, first.probe.kvm.passed());
    }

    let settled = first.probe.kvm.passed() || !hardware || !device;
    let second = probe(&settings(Some(&cache))).unwrap();
    assert_eq!(second.from_cache, settled, "a settled result is kept");
    if settled {
        assert_eq!(second.probe, first.probe);
    }
    std::fs::write(&cache, b"{ damaged").unwrap();
    let third = probe(&settings(Some(&cache))).unwrap();
    assert!(!third.from_cache, "a damaged file is not believed");
    let forced = probe(&ProbeSettings { freshness: Freshness::ProbeNow, ..settings(Some(&cache)) }).unwrap();
    assert!(!forced.from_cache, "demanded anew");
    assert_eq!(classify(&forced.probe).kind, finding.kind);
}

#[test]
fn the_small_microvm_build_understands_the_probe_guest_too() {
    let Some(path) = Programs::default().find("qemu-system-x86_64-microvm") else {
        println!("SKIPPED: this host has no qemu-system-x86_64-microvm");
        return;
    };
    let programs = Programs { qemu: Some(path), ..Programs::default() };
    let probed = probe(&ProbeSettings { programs, ..settings(None) }).unwrap();
    println!("kvm: {:?}\ntcg: {:?}", probed.probe.kvm, probed.probe.tcg);
    assert!(!probed.probe.tcg.passed(), "it is built without TCG");
    let ordinary = probe(&settings(None)).unwrap();
    assert_eq!(probed.probe.kvm.passed(), ordinary.probe.kvm.passed());
}

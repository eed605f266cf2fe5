//! A report as text for people. Meaning never depends on colour.

use std::fmt::Write;

use crate::check::{Check, Status};
use crate::report::{Report, engine_name};
use crate::virtualization::Virtualization;

/// How the text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether the terminal shows colours.
    pub color: bool,
}

/// The report as text, ending in a newline.
pub fn render_human(report: &Report, style: Style) -> String {
    let mut text = String::new();
    let host = &report.host;
    let processor = host.cpu.as_ref().map_or("unknown processor", |cpu| &cpu.model_name);
    let boundary = if report.engine.security_boundary { "" } else { " (not a security boundary)" };
    let forced = if report.engine.forced { ", forced by the engine setting" } else { "" };
    let age = if report.probe_from_cache { " (kept from an earlier probe)" } else { "" };
    let facts = [
        ("Host", format!("{}, Linux {}", host.operating_system, host.kernel_release)),
        ("Processor", format!("{} × {processor}", host.cpus)),
        (
            "Virtualization",
            format!("{}{age}: {}", kind(report.virtualization.kind), report.virtualization.reason),
        ),
        ("Engine", format!("{}{boundary}{forced}", engine_name(&report.engine))),
        ("Firecracker", availability(report)),
    ];
    for (name, value) in facts {
        push(&mut text, format_args!("{name:<15} {value}\n"));
    }
    text.push('\n');
    for check in &report.checks {
        push_check(&mut text, check, style);
    }
    let count = |status| report.checks.iter().filter(|check| check.status == status).count();
    let verdict =
        if report.ok { "This host can run machines." } else { "This host cannot run machines yet." };
    push(
        &mut text,
        format_args!(
            "\n{verdict} {} ok, {} warnings, {} problems, {} not tried.\n",
            count(Status::Ok),
            count(Status::Warning),
            count(Status::Problem),
            count(Status::NotTried)
        ),
    );
    text
}

fn push_check(text: &mut String, check: &Check, style: Style) {
    let (word, color) = match check.status {
        Status::Ok => ("ok", "32"),
        Status::Warning => ("warning", "33"),
        Status::Problem => ("problem", "31"),
        Status::NotTried => ("not tried", "36"),
    };
    let word = format!("{word:<9}");
    let word = if style.color { format!("\x1b[{color}m{word}\x1b[0m") } else { word };
    push(text, format_args!("{word} {}: {}\n", check.title, check.detail));
    if let Some(fix) = &check.fix {
        push(text, format_args!("{:<9} fix: {fix}\n", ""));
    }
}

fn kind(kind: Virtualization) -> &'static str {
    match kind {
        Virtualization::HardwareKvm => "hardware KVM",
        Virtualization::Pvm => "PVM",
        Virtualization::None => "none",
        Virtualization::NotTried => "not tried",
    }
}

fn availability(report: &Report) -> String {
    let word = if report.firecracker.available { "available" } else { "unavailable" };
    format!("{word}: {}", report.firecracker.reason)
}

fn push(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Subject;
    use crate::engine::{EngineSetting, FirecrackerFound, choose, firecracker_status};
    use crate::facts::HostFacts;
    use crate::probe::tests::{FAILED, PASSED, probe};
    use crate::tsc::{Tsc, TscSource};
    use crate::virtualization::classify;

    fn report() -> Report {
        let probe = probe(None, &["kvm", "kvm_pvm"], FAILED, PASSED);
        let finding = classify(&probe);
        let disk = Subject { name: "disk", title: "Free disk" };
        let checks = vec![
            disk.ok("80 GiB"),
            disk.warning("10 GiB", "make room"),
            disk.problem("1 GiB", "make more room"),
            disk.not_tried("nobody knows"),
        ];
        Report {
            generated_at_unix_ms: 1_700_000_000_000,
            ok: false,
            engine: choose(EngineSetting::Auto, &finding, Some(&probe), &FirecrackerFound::Missing),
            firecracker: firecracker_status(&FirecrackerFound::Missing, &finding),
            virtualization: finding,
            probe: Some(probe),
            probe_from_cache: true,
            host: HostFacts {
                kernel_release: "6.18.0".into(),
                operating_system: "Debian".into(),
                cpu: None,
                cpus: 2,
                memory_total_bytes: 1 << 34,
                memory_available_bytes: 1 << 33,
                tsc: Tsc { khz: 2_793_436, source: TscSource::KernelLog },
            },
            checks,
        }
    }

    #[test]
    fn plain_text() {
        let expected = "\
Host            Debian, Linux 6.18.0
Processor       2 × unknown processor
Virtualization  PVM (kept from an earlier probe): /dev/kvm opens, but it is kvm_pvm (software virtualization), the processor shows neither vmx nor svm, and a stock guest did not pass: as the test says. It needs a guest kernel built for PVM (CONFIG_PVM_GUEST=y), which the operator supplies: --kernel FILE (or PANDASTACK_KERNEL)
Engine          QEMU with TCG (not a security boundary)
Firecracker     unavailable: there is no firecracker program, and PVM does not work

ok        Free disk: 80 GiB
warning   Free disk: 10 GiB
          fix: make room
problem   Free disk: 1 GiB
          fix: make more room
not tried Free disk: nobody knows

This host cannot run machines yet. 1 ok, 1 warnings, 1 problems, 1 not tried.
";
        assert_eq!(render_human(&report(), Style { color: false }), expected);
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let colored = render_human(&report(), Style { color: true });
        assert!(colored.contains("\x1b[31mproblem"));
        let mut plain = colored;
        for code in ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[0m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, render_human(&report(), Style { color: false }));
    }

    #[test]
    fn json_carries_the_same_verdict() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["ok"], false);
        assert_eq!(json["virtualization"]["kind"], "pvm");
        assert_eq!(json["engine"]["engine"], serde_json::json!({ "name": "qemu", "accel": "tcg" }));
        assert_eq!(json["engine"]["security_boundary"], false);
        assert_eq!(json["checks"][3]["status"], "not_tried");
    }
}

//! What the first words after a restore cost. Prints medians; asserts nothing, because hosts differ.

use std::time::{Duration, Instant};

use guest_link::client::{ExecLimits, Flush, Link, Opening};
use guest_link::message::{Identity, ProcessSpec};
use tempfile::TempDir;

use crate::lifecycle::identity;
use crate::machine::{Machine, Start, copy, parts, within};

const LIMITS: ExecLimits = ExecLimits { stdout_bytes_max: 1 << 20, stderr_bytes_max: 1 << 20 };

const ROUNDS: usize = 7;

async fn exec(link: &Link, spec: ProcessSpec) -> Duration {
    let start = Instant::now();
    within(link.exec(spec, b"", LIMITS)).await.unwrap();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_words_after_a_restore() {
    let Some(parts) = parts() else { return };
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    copy(&parts.join("disk"), &at("disk"));
    let mut machine =
        Machine::start(directory.path(), "template", &parts, &at("ram"), &at("disk"), &Start::Boot);
    let (link, _) = machine.open(Opening::Clean, None).await;
    exec(&link, ProcessSpec::shell("mkdir -p /etc/ssh")).await;
    within(link.identify(identity("template", 2))).await.unwrap();
    for _ in 0..3 {
        exec(&link, ProcessSpec::argv(["/bin/true"])).await;
        exec(&link, ProcessSpec::shell("echo hi")).await;
    }
    within(link.quiesce(Flush::FileSystems)).await.unwrap();
    machine.qmp("stop", "{}");
    machine.save(&at("devices"));
    drop((link, machine));

    let full = |_: &str| Some(identity("restored", 6));
    let waking = |_: &str| full("").map(|identity| Identity { fresh: None, ..identity });
    let lonely = |_: &str| full("").map(|identity| Identity { network: None, ..identity });
    let bare = |_: &str| full("").map(|identity| Identity { network: None, fresh: None, ..identity });
    let none = |_: &str| None;
    type Case<'a> = (&'a str, &'a dyn Fn(&str) -> Option<Identity>);
    let cases: [Case<'_>; 5] = [
        ("no identity", &none),
        ("entropy, clock, hostname", &bare),
        ("fresh, no network", &lonely),
        ("network, not fresh", &waking),
        ("all of it", &full),
    ];
    for (what, identity) in cases {
        let (mut opened, mut first, mut second, mut shell) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            copy(&at("disk"), &at("own"));
            let mut machine = Machine::start(
                directory.path(),
                "own",
                &parts,
                &at("ram"),
                &at("own"),
                &Start::Restore(&at("devices")),
            );
            let start = Instant::now();
            machine.qmp("cont", "{}");
            let (link, _) = machine.open(Opening::Clean, identity(what)).await;
            opened.push(start.elapsed());
            first.push(exec(&link, ProcessSpec::argv(["/bin/true"])).await);
            second.push(exec(&link, ProcessSpec::argv(["/bin/true"])).await);
            shell.push(exec(&link, ProcessSpec::shell("echo hi")).await);
        }
        eprintln!(
            "{what}: cont→open {:.1?}, first exec {:.1?}, second {:.1?}, sh -c {:.1?}",
            median(opened),
            median(first),
            median(second),
            median(shell)
        );
    }
}

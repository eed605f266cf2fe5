//! `pandastack demo`: a sandbox at work, from nothing, in one command.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, ensure};
use guest_link::client::{ExecLimits, Link};
use guest_link::message::ProcessSpec;
use node::{CreateFrom, CreateRequest, Node, Sandbox};

use crate::command::template;
use crate::config::Settings;
use crate::engine::{choose, open_node};
use crate::output::say;

const LIMITS: ExecLimits = ExecLimits { stdout_bytes_max: 1 << 20, stderr_bytes_max: 1 << 20 };
/// A program that lives on in memory: it counts, and what it has counted is nowhere on disk.
const COUNTER: &str = "import itertools, os, time\n\
    for n in itertools.count():\n    open('/run/count', 'w').write(f'pid {os.getpid()} has counted to {n}')\n    time.sleep(0.1)";

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let choice = choose(settings)?;
    say(format!("engine: {}", choice.reason));
    if !choice.security_boundary {
        say("note: software emulation is for trying things out; it is not a security boundary");
    }
    let node = open_node(settings).await?;
    let mut sandboxes = Vec::new();
    let shown = show(&node, &mut sandboxes).await;
    for sandbox in sandboxes {
        if let Err(error) = sandbox.delete().await {
            say(format!("could not remove sandbox {}: {error}", sandbox.id()));
        }
    }
    node.close().await;
    shown?;
    say("done: everything the demo made is removed; the template stays for the next time");
    Ok(ExitCode::SUCCESS)
}

async fn show(node: &Node, made: &mut Vec<Sandbox>) -> anyhow::Result<()> {
    say("preparing the template `minimal` (a minute or two the first time, nothing after that)");
    let snapshot = template::bake(node, "minimal").await?;

    let started = Instant::now();
    let request = CreateRequest::new(CreateFrom::Snapshot(snapshot));
    let (parent, timings) = node.create(request).await.context("create a sandbox")?;
    made.push(parent.clone());
    say(format!(
        "created sandbox {} in {:.0} ms ({:.0} ms to load its devices, {:.0} ms until the guest answered)",
        parent.id(),
        started.elapsed().as_secs_f64() * 1e3,
        timings.load_ms,
        timings.confirm_ms
    ));

    let link = parent.link().await?;
    let started = Instant::now();
    let version = run_in(
        &link,
        &["python3", "-c", "import os, sys; print(sys.version.split()[0], os.uname().release)"],
    )
    .await?;
    say(format!("python in it says: {version} ({:.0} ms)", started.elapsed().as_secs_f64() * 1e3));

    link.start_detached(ProcessSpec::argv(["python3", "-c", COUNTER])).await.context("start the counter")?;
    run_in(
        &link,
        &[
            "sh",
            "-c",
            "until test -s /run/count; do sleep 0.1; done; echo written before the fork > /root/note",
        ],
    )
    .await?;

    let started = Instant::now();
    let (children, _) = node.fork(&parent, 2).await.context("fork the sandbox")?;
    for child in children {
        made.push(child.context("make a child")?);
    }
    say(format!("forked it into two children in {:.0} ms", started.elapsed().as_secs_f64() * 1e3));

    let mut hosts = Vec::new();
    for sandbox in made.iter() {
        let link = sandbox.link().await?;
        run_in(&link, &["sh", "-c", "echo changed by $(hostname) >> /root/note"]).await?;
        let note = run_in(&link, &["cat", "/root/note"]).await?.replace('\n', "; ");
        let count = run_in(&link, &["cat", "/run/count"]).await?;
        say(format!("  {}: {count}; its disk says: {note}", sandbox.id()));
        hosts.push(note);
    }
    hosts.sort();
    hosts.dedup();
    ensure!(hosts.len() == 3, "the three machines should differ and do not");

    let started = Instant::now();
    parent.hibernate().await.context("hibernate")?;
    say(format!("put the parent to sleep in {:.0} ms", started.elapsed().as_secs_f64() * 1e3));
    let started = Instant::now();
    parent.wake().await.context("wake")?;
    let count = run_in(&parent.link().await?, &["cat", "/run/count"]).await?;
    say(format!("woke it in {:.0} ms: {count}", started.elapsed().as_secs_f64() * 1e3));
    Ok(())
}

async fn run_in(link: &Link, command: &[&str]) -> anyhow::Result<String> {
    let spec = ProcessSpec::argv(command.iter().copied());
    let output = link.exec(spec, b"", LIMITS).await.with_context(|| format!("run {}", command.join(" ")))?;
    ensure!(
        output.exit.status.shell_code() == 0,
        "{} ended with {}: {}",
        command.join(" "),
        output.exit.status.shell_code(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

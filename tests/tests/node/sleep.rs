//! Hibernate, wake, pause: nothing is lost however often, and racing requests have one winner and a clear loser.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::lifecycle::Phase;
use node::NodeError;
use tests::{Guest, Lab, LabSettings, census, in_lab, run, wait};

#[test]
fn nothing_is_lost_in_many_sleeps() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        guest.start_counter().await?;
        let boot = guest.shell("cat /proc/sys/kernel/random/boot_id").await?;
        let mut counted = guest.counter().await?;
        let directory = lab.sandbox_directory(guest.id());
        for round in 1..=6 {
            // Written and not synced: it must be in the saved memory or on the saved disk.
            guest.shell(&format!("echo round {round} >> /grows; echo round {round} >> /run/grows")).await?;
            guest.hibernate().await?;
            ensure!(guest.phase() == Phase::Hibernated);
            ensure!(directory.join("hibernation.json").exists());
            let files = census::entries(&directory)?;
            ensure!(
                files.iter().any(|name| name.ends_with(".ahead")),
                "nothing to read ahead is noted: {files:?}"
            );
            ensure!(guest.machine().is_err(), "a hibernated sandbox has a machine");
            guest.wake().await?;
            ensure!(guest.phase() == Phase::Running);
            // An image that outlives the wake would one day put old memory over a newer disk.
            let files = census::entries(&directory)?;
            ensure!(!files.contains("hibernation.json"), "the image is still there after waking: {files:?}");
            ensure!(!files.iter().any(|name| name.starts_with("devices.")), "{files:?}");
            let memories =
                files.iter().filter(|name| name.starts_with("memory.") && !name.ends_with(".sums"));
            ensure!(memories.count() == 1, "more memory than the machine maps: {files:?}");
            let lines = guest.shell("cat /grows /run/grows | wc -l").await?;
            ensure!(lines == (2 * round).to_string(), "round {round}: {lines} lines");
            let now = guest.counter().await?;
            ensure!(now >= counted, "the counter went from {counted} to {now}");
            counted = now;
        }
        ensure!(guest.shell("cat /proc/sys/kernel/random/boot_id").await? == boot, "it was booted anew");
        // The disk as a fresh kernel would see it is whole too.
        guest.shell("sync; cat /grows > /dev/null; dmesg | grep -i 'ext4.*error' && exit 1; true").await?;
        Ok(())
    })
}

#[test]
fn sleeping_and_waking_twice_is_once() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        guest.wake().await?;
        guest.resume().await?;
        guest.pause().await?;
        guest.pause().await?;
        ensure!(guest.phase() == Phase::Paused);
        let refused = guest.shell("true").await;
        ensure!(refused.is_err(), "a paused guest answered");
        guest.wake().await?;
        guest.shell("true").await?;
        guest.hibernate().await?;
        guest.hibernate().await?;
        guest.wake().await?;
        guest.wake().await?;
        guest.shell("true").await?;
        guest.pause().await?;
        guest.hibernate().await.context("hibernate a paused sandbox")?;
        let paused = guest.pause().await;
        ensure!(matches!(paused, Err(NodeError::Refused { phase: Phase::Hibernated, .. })), "{paused:?}");
        guest.wake().await?;
        guest.shell("true").await?;
        Ok(())
    })
}

#[test]
fn deleting_works_in_every_phase() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("delete")).await?;
        let clean = lab.settled_census().await?;
        let running = lab.create().await?;
        let paused = lab.create().await?;
        paused.pause().await?;
        let asleep = lab.create().await?;
        asleep.hibernate().await?;
        let died = lab.create().await?;
        tests::leftovers::os::kill_process(died.machine()?)?;
        wait::until("it is known to have died", Duration::from_secs(60), || died.phase() == Phase::Died)
            .await?;
        for guest in [running, paused, asleep, died] {
            let sandbox = guest.keep();
            sandbox.delete().await?;
            sandbox.delete().await.context("delete again")?;
            ensure!(matches!(sandbox.wake().await, Err(NodeError::NoSandbox(_))));
        }
        lab.expect_census(&clean).await?;
        lab.remove().await
    })
}

#[derive(Debug, Clone, Copy)]
enum Ask {
    Wake,
    Hibernate,
    Fork,
    Pause,
    Resume,
    Delete,
}

/// Asks, and tells whether the answer is one a caller can make sense of.
async fn ask(lab: &Lab, sandbox: &node::Sandbox, ask: Ask) -> Result<Result<Vec<Guest>, NodeError>> {
    let answer = match ask {
        Ask::Wake => sandbox.wake().await.map(|_| Vec::new()),
        Ask::Hibernate => sandbox.hibernate().await.map(|_| Vec::new()),
        Ask::Pause => sandbox.pause().await.map(|()| Vec::new()),
        Ask::Resume => sandbox.resume().await.map(|()| Vec::new()),
        Ask::Delete => sandbox.delete().await.map(|()| Vec::new()),
        Ask::Fork => match lab.node().fork(sandbox, 1).await {
            Err(error) => Err(error),
            Ok((children, _)) => {
                let made: Result<Vec<_>, _> = children.into_iter().collect();
                made.map(|made| made.into_iter().map(Guest::new).collect())
            }
        },
    };
    match answer {
        Ok(children) => Ok(Ok(children)),
        Err(error @ (NodeError::Refused { .. } | NodeError::NoSandbox(_))) => Ok(Err(error)),
        Err(error) => bail!("{ask:?} got {error:?}"),
    }
}

#[test]
fn racing_requests_leave_one_consistent_state() -> Result<()> {
    run(async || {
        let lab = Lab::open(LabSettings::new("race")).await?;
        let clean = lab.settled_census().await?;
        let rounds: [&[Ask]; 3] = [
            &[Ask::Hibernate, Ask::Wake, Ask::Fork, Ask::Wake, Ask::Hibernate, Ask::Fork, Ask::Wake],
            &[Ask::Pause, Ask::Hibernate, Ask::Resume, Ask::Fork, Ask::Wake, Ask::Pause],
            &[Ask::Hibernate, Ask::Wake, Ask::Delete, Ask::Fork, Ask::Wake, Ask::Delete, Ask::Hibernate],
        ];
        for (number, round) in rounds.iter().enumerate() {
            let guest = lab.create().await?;
            guest.shell("echo kept > /kept; echo kept > /run/kept").await?;
            let sandbox = guest.sandbox().clone();
            let mut answers = Vec::new();
            let asked = round.iter().map(|&what| Box::pin(ask(&lab, &sandbox, what)));
            for answer in join_all(asked).await {
                answers.push(answer?);
            }
            let summary: BTreeMap<_, _> = answers.iter().map(Result::is_ok).enumerate().collect();
            for child in answers.into_iter().filter_map(Result::ok).flatten() {
                ensure!(child.shell("cat /kept /run/kept").await? == "kept\nkept", "{summary:?}");
                child.remove().await?;
            }
            if round.iter().any(|what| matches!(what, Ask::Delete)) {
                ensure!(lab.node().sandbox(sandbox.id()).is_err(), "round {number}: it is still there");
                drop(guest.keep());
            } else {
                // Whoever won, the sandbox can be had again with all it held.
                guest.wake().await.with_context(|| format!("round {number}, {summary:?}"))?;
                ensure!(guest.shell("cat /kept /run/kept").await? == "kept\nkept");
                guest.remove().await?;
            }
            lab.expect_census(&clean).await?;
        }
        lab.remove().await
    })
}

/// Waits for all of them at once, on this task.
async fn join_all<F: Future + Unpin>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, output) in &mut waiting {
            let Some(pending) = future else { continue };
            match std::pin::Pin::new(pending).poll(context) {
                std::task::Poll::Ready(value) => (*future, *output) = (None, Some(value)),
                std::task::Poll::Pending => all = false,
            }
        }
        if all { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

#[test]
fn a_machine_that_dies_says_so_and_starts_from_its_disk() -> Result<()> {
    in_lab(async |lab| {
        let (guest, other) = (lab.create().await?, lab.create().await?);
        guest.shell("echo kept > /kept; sync").await?;
        let name = guest.shell("hostname").await?;
        tests::leftovers::os::kill_process(guest.machine()?)?;
        wait::until("it is known to have died", Duration::from_secs(60), || guest.phase() == Phase::Died)
            .await?;
        let reason = guest.state().record.died.clone().context("it has no reason")?;
        ensure!(reason.contains("signal"), "{reason}");
        let refused = guest.hibernate().await;
        ensure!(matches!(refused, Err(NodeError::Died { .. })), "{refused:?}");
        let refused = guest.link().await;
        ensure!(matches!(refused, Err(NodeError::Died { .. })), "{refused:?}");
        other.shell("true").await.context("another sandbox was affected")?;
        guest.start_cold().await?;
        ensure!(guest.shell("cat /kept; hostname").await? == format!("kept\n{name}"));
        ensure!(guest.state().record.died.is_none());
        // A machine that was booted can do all that a restored one can.
        guest.shell("echo more > /run/more").await?;
        guest.hibernate().await?;
        guest.wake().await?;
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        ensure!(child.shell("cat /kept /run/more").await? == "kept\nmore");
        Ok(())
    })
}

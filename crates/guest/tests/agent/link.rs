//! Sessions: silence, torn streams, hosts that die and come back.

use guest_link::client::{CallError, Flush, LinkError, Opening, ProcessEvent};
use guest_link::message::{Offsets, Parents, ProcessSpec, WriteMode, WriteSpec};
use tempfile::TempDir;

use crate::harness::{Guest, LIMITS, guest, path, shell, until, within};

#[tokio::test]
async fn silence_is_kept_and_everything_goes_on_after_it() {
    let (_guest, link) = guest().await;
    let mut loud = within(link.start(ProcessSpec::shell("seq 1 300000"))).await.unwrap();
    within(link.start_detached(ProcessSpec::argv(["sleep", "1000"]))).await.unwrap();
    for flush in [Flush::Nothing, Flush::FileSystems] {
        let quiesced = within(link.quiesce(flush)).await.unwrap();
        assert!(quiesced.processes >= 1);
        assert!(matches!(link.quiesce(flush).await, Err(LinkError::AlreadyQuiesced)));
        // A request made now waits, and is answered after the silence.
        let waiting = tokio::spawn({
            let link = link.clone();
            async move { link.ping().await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        link.resume();
        within(waiting).await.unwrap().unwrap();
    }
    let output = within(loud.collect(LIMITS)).await.unwrap();
    assert!(output.stdout.ends_with(b"300000\n"));
}

#[tokio::test]
async fn a_host_that_died_in_the_middle_of_a_frame_comes_back() {
    let directory = TempDir::new().unwrap();
    let guest = Guest::start();
    let link = guest.open(Opening::Clean).await;
    let survivor =
        within(link.start(ProcessSpec::shell("for i in 1 2 3; do echo $i; sleep 0.1; done; sleep 1000")))
            .await
            .unwrap();
    let id = survivor.id();
    let target = directory.path().join("upload");
    let how = WriteSpec {
        path: path(&target),
        how: WriteMode::Replace,
        mode: None,
        owner: None,
        parents: Parents::Require,
    };
    let mut writer = link.write_file(how).unwrap();
    within(writer.write(&vec![7; 1 << 20])).await.unwrap();
    // Silence keeps the client from writing anything more, then its "process" dies, leaving half a frame behind.
    within(link.quiesce(Flush::Nothing)).await.unwrap();
    std::mem::forget(writer);
    drop((survivor, link));
    for torn in [&[5_u8][..], &[5, 0, 128, 0], &[2, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 1, 2, 3]] {
        guest.write_raw(torn).await;
        let link = guest.open(Opening::Reattach).await;
        assert_eq!(shell(&link, "echo again").await.stdout, b"again\n");
        drop(link);
    }
    let link = guest.open(Opening::Reattach).await;
    assert_eq!(link.guest().sessions_before, 4);
    // Its processes live, its transfers are undone.
    let mut again = within(link.attach(id, Offsets::BEGINNING)).await.unwrap();
    let mut seen = Vec::new();
    while seen != b"1\n2\n3\n" {
        match within(again.next()).await.unwrap() {
            ProcessEvent::Output { data, .. } => seen.extend(data),
            other => panic!("{other:?}"),
        }
    }
    until(async || (std::fs::read_dir(directory.path()).unwrap().count() == 0).then_some(())).await;
}

#[tokio::test]
async fn the_newest_host_wins() {
    let guest = Guest::start();
    let old = guest.open(Opening::Clean).await;
    let mut process = within(old.start(ProcessSpec::shell("echo here; sleep 1000"))).await.unwrap();
    let new = guest.open(Opening::Reattach).await;
    assert_eq!(within(new.process(process.id())).await.unwrap().exit, None);
    // The old client is told, not left waiting.
    loop {
        match within(process.next()).await {
            Ok(_) => {}
            Err(error) => break assert!(matches!(error, CallError::Link(_)), "{error:?}"),
        }
    }
    within(new.ping()).await.unwrap();
}

#[tokio::test]
async fn a_guest_survives_garbage() {
    let guest = Guest::start();
    let mut seed = 1_u64;
    for _ in 0..20 {
        let garbage: Vec<u8> = (0..5000)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        guest.write_raw(&garbage).await;
        let link = guest.open(Opening::Reattach).await;
        within(link.ping()).await.unwrap();
    }
}

#[tokio::test]
async fn a_link_that_is_lost_says_so_to_everyone() {
    let (guest, link) = guest().await;
    let mut process = within(link.start(ProcessSpec::argv(["sleep", "1000"]))).await.unwrap();
    let pid = process.pid();
    assert!(!link.is_closed());
    drop(guest);
    assert!(matches!(within(link.closed()).await, LinkError::Closed | LinkError::Io(_)));
    assert!(matches!(within(process.next()).await, Err(CallError::Link(_))));
    assert!(matches!(within(link.ping()).await, Err(CallError::Link(_))));
    // The process belongs to the guest and, with the guest killed as only a test does, to nobody.
    std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
}

#[tokio::test]
async fn bulk_does_not_delay_small_talk() {
    let (_guest, link) = guest().await;
    let mut bulk = Vec::new();
    for _ in 0..4 {
        let link = link.clone();
        bulk.push(tokio::spawn(async move { shell(&link, "head -c 50000000 /dev/zero").await.stdout.len() }));
    }
    let mut worst = std::time::Duration::ZERO;
    while !bulk.iter().all(tokio::task::JoinHandle::is_finished) {
        let asked = std::time::Instant::now();
        within(link.ping()).await.unwrap();
        worst = worst.max(asked.elapsed());
    }
    for task in bulk {
        assert_eq!(task.await.unwrap(), 50_000_000);
    }
    assert!(worst < std::time::Duration::from_secs(2), "a ping took {worst:?}");
}

//! The link to a guest: commands, terminals, processes, files, ports, load, shutdown.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use domain::lifecycle::Phase;
use guest_link::client::{CallError, Link, ProcessEvent};
use guest_link::message::{
    Channel, EntryKind, ExitStatus, Failure, FileFailure, Links, ListSpec, Offsets, Parents, ProcessFailure,
    ProcessSpec, RemoveScope, SignalScope, Terminal, TerminalSize, User, WatchKind, WatchScope, WatchSpec,
    WriteMode, WriteSpec,
};
use guest_link::{GuestPath, message::Owner};
use machine::Rates;
use sha2::{Digest, Sha256};
use tests::guest::{OUTPUT_MAX, path, shell};
use tests::{Guest, Lab, LabSettings, engine, in_lab, run, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long anything small may take in an emulated guest.
const TIMEOUT: Duration = Duration::from_secs(60);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write_spec(path: GuestPath) -> WriteSpec {
    WriteSpec { path, how: WriteMode::Replace, mode: None, owner: None, parents: Parents::Require }
}

async fn write(link: &Link, path: GuestPath, data: &[u8]) -> Result<u64, CallError> {
    let mut writer = link.write_file(write_spec(path))?;
    writer.write(data).await?;
    writer.finish().await
}

fn expect_file<T: std::fmt::Debug>(outcome: Result<T, CallError>, expected: FileFailure) -> Result<()> {
    match outcome {
        Err(CallError::Guest(Failure::File(found))) if found == expected => Ok(()),
        other => bail!("expected {expected:?}, got {other:?}"),
    }
}

#[test]
fn commands_get_what_they_are_given() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let argv = ProcessSpec::argv(["printf", "%s|", "a b", "", "$HOME", "ü\u{2028}"]);
        ensure!(text(&link.exec(argv, b"", OUTPUT_MAX).await?.stdout) == "a b||$HOME|ü\u{2028}|");

        let mut spec = ProcessSpec::shell("pwd; echo $WORD; id -un; cat; echo oops >&2; exit 7");
        spec.cwd = Some(path("/usr/lib")?);
        spec.env = vec![("WORD".to_owned(), "two words".to_owned())];
        spec.user = Some(User::Name("user".to_owned()));
        let output = link.exec(spec, b"from stdin\n", OUTPUT_MAX).await?;
        ensure!(
            text(&output.stdout) == "/usr/lib\ntwo words\nuser\nfrom stdin\n",
            "{}",
            text(&output.stdout)
        );
        ensure!(text(&output.stderr) == "oops\n", "{}", text(&output.stderr));
        ensure!(output.exit.status == ExitStatus::Code(7) && !output.exit.timed_out, "{:?}", output.exit);

        let killed = link.exec(ProcessSpec::shell("kill -SEGV $$"), b"", OUTPUT_MAX).await?;
        ensure!(killed.exit.status == ExitStatus::Signal(11), "{:?}", killed.exit);

        for (spec, expected) in [
            (ProcessSpec::argv(["/no/such/program"]), ProcessFailure::ProgramNotFound),
            (ProcessSpec::argv(["no-such-program"]), ProcessFailure::ProgramNotFound),
            (ProcessSpec::argv(["/etc/passwd"]), ProcessFailure::NotExecutable),
            (ProcessSpec::argv(Vec::<String>::new()), ProcessFailure::InvalidCommand),
            (
                ProcessSpec { cwd: Some(path("/no/where")?), ..ProcessSpec::shell("true") },
                ProcessFailure::WorkingDirectory,
            ),
            (
                ProcessSpec { user: Some(User::Name("nobody-here".into())), ..ProcessSpec::shell("true") },
                ProcessFailure::UnknownUser,
            ),
        ] {
            let outcome = link.exec(spec.clone(), b"", OUTPUT_MAX).await;
            match outcome {
                Err(CallError::Guest(Failure::Process(found))) if found == expected => {}
                other => bail!("{spec:?}: expected {expected:?}, got {other:?}"),
            }
        }
        Ok(())
    })
}

#[test]
fn a_timeout_ends_the_whole_group() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let mut spec = ProcessSpec::shell("trap '' TERM; (sleep 1234 & sleep 1234) & sleep 1234");
        spec.timeout_ms = Some(500);
        let started = Instant::now();
        let output = guest.exec(spec).await?;
        ensure!(output.exit.timed_out, "{:?}", output.exit);
        ensure!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
        ensure!(guest.shell("pgrep -x sleep; true").await?.is_empty(), "something survived its timeout");
        Ok(())
    })
}

#[test]
fn a_background_process_neither_delays_nor_dies() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let started = Instant::now();
        // It keeps the command's own output open.
        guest.shell("sleep 4321 & echo started").await?;
        ensure!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
        guest.shell("pgrep -x sleep").await.context("it died with its command")?;
        guest.shell("pkill -x sleep; true").await?;
        Ok(())
    })
}

#[test]
fn a_slow_reader_slows_only_its_own_command() -> Result<()> {
    in_lab(async |lab| {
        const BYTES: u64 = 100_000_000;
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let line = format!("head -c {BYTES} /dev/zero | tr '\\0' 'x'");
        let mut flood = link.start(ProcessSpec::shell(line)).await?;
        // Nothing is read; the guest may have sent only what fits the window.
        for _ in 0..3 {
            let started = Instant::now();
            ensure!(shell(&link, "echo quick").await? == "quick");
            ensure!(started.elapsed() < TIMEOUT, "{:?} beside a flood", started.elapsed());
        }
        let (mut count, mut looked) = (0u64, 0);
        loop {
            match flood.next().await? {
                ProcessEvent::Output { channel, offset, data } => {
                    ensure!(channel == Channel::Stdout && offset == count, "a gap at {count}: {offset}");
                    ensure!(data.iter().all(|&byte| byte == b'x'));
                    count += data.len() as u64;
                    if count / 25_000_000 > looked {
                        looked = count / 25_000_000;
                        ensure!(shell(&link, "echo quick").await? == "quick");
                    }
                }
                ProcessEvent::Gap { .. } => bail!("output was lost at {count}"),
                ProcessEvent::Exited(exit) => {
                    ensure!(exit.status == ExitStatus::Code(0), "{exit:?}");
                    break;
                }
            }
        }
        ensure!(count == BYTES, "{count} bytes");
        Ok(())
    })
}

#[test]
fn every_byte_arrives_as_it_was() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let mut bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        bytes.extend("\u{2028}\u{2029}é\u{0}\u{1f43c}".as_bytes());
        bytes.extend([0xff, 0xfe, 0xc3]);
        let limits = guest_link::client::ExecLimits { stdout_bytes_max: 1 << 20, stderr_bytes_max: 1 << 20 };
        let output = link.exec(ProcessSpec::shell("tee /dev/stderr"), &bytes, limits).await?;
        ensure!(output.stdout == bytes, "standard output differs");
        ensure!(output.stderr == bytes, "standard error differs");
        Ok(())
    })
}

#[test]
fn a_terminal_has_a_size_that_can_change() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let mut spec = ProcessSpec::argv(["/bin/sh"]);
        let size = TerminalSize { columns: 91, rows: 17 };
        spec.terminal = Some(Terminal { size, term: "xterm".to_owned() });
        let mut terminal = link.start(spec).await?;
        let input = terminal.take_input().context("a terminal has input")?;
        let mut seen = String::new();
        input.write_all(b"stty size; tty; echo $TERM\n").await?;
        read_until(&mut terminal, &mut seen, "xterm\r\n").await?;
        ensure!(seen.contains("17 91") && seen.contains("/dev/pts/"), "{seen}");
        link.resize(terminal.id(), TerminalSize { columns: 132, rows: 43 }).await?;
        input.write_all(b"stty size\n").await?;
        read_until(&mut terminal, &mut seen, "43 132").await?;
        // The terminal's interrupt reaches what runs in it, not the shell.
        input.write_all(b"sleep 999\n").await?;
        wait::until_async("sleep runs", TIMEOUT, async || {
            Ok(!shell(&link, "pgrep -x sleep; true").await?.is_empty())
        })
        .await?;
        input.write_all(b"\x03").await?;
        input.write_all(b"echo interrupted $?\nexit 3\n").await?;
        let status = read_until(&mut terminal, &mut seen, "never shown").await?;
        ensure!(seen.contains("interrupted 130"), "{seen}");
        ensure!(status == Some(ExitStatus::Code(3)), "{status:?}");
        Ok(())
    })
}

/// Reads until the text has come or the process has ended; tells how it ended.
async fn read_until(
    process: &mut guest_link::client::Process,
    seen: &mut String,
    wanted: &str,
) -> Result<Option<ExitStatus>> {
    while !seen.contains(wanted) {
        let event = tokio::time::timeout(TIMEOUT, process.next()).await;
        match event.with_context(|| format!("only {seen:?} came"))?? {
            ProcessEvent::Output { data, .. } => seen.push_str(&text(&data)),
            ProcessEvent::Gap { .. } => {}
            ProcessEvent::Exited(exit) => return Ok(Some(exit.status)),
        }
    }
    Ok(None)
}

#[test]
fn a_detached_process_is_listed_attached_to_and_signalled() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let line = "echo one; echo two; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo three; sleep 1111";
        let mut spec = ProcessSpec::shell(line);
        spec.tag = Some("worker".to_owned());
        let started = link.start_detached(spec).await?;
        let listed = link.processes().await?;
        let found = listed.iter().find(|info| info.process == started.process).context("it is not listed")?;
        ensure!(found.tag.as_deref() == Some("worker") && found.exit.is_none() && found.pid == started.pid);

        let mut seen = String::new();
        let mut all = link.attach(started.process, Offsets::BEGINNING).await?;
        read_until(&mut all, &mut seen, "two\n").await?;
        ensure!(seen == "one\ntwo\n", "{seen:?}");
        drop(all);
        // A reader that comes back asks only for what it has not seen.
        shell(&link, "touch /tmp/go").await?;
        let from = Offsets { stdout: seen.len() as u64, stderr: 0 };
        let mut rest = link.attach(started.process, from).await?;
        let mut more = String::new();
        read_until(&mut rest, &mut more, "three\n").await?;
        ensure!(more == "three\n", "{more:?}");

        link.signal(started.process, 15, SignalScope::Group).await?;
        let status = read_until(&mut rest, &mut more, "never shown").await?;
        ensure!(status == Some(ExitStatus::Signal(15)), "{status:?}");
        let info = link.process(started.process).await?;
        ensure!(info.exit.is_some_and(|exit| exit.status == ExitStatus::Signal(15)), "{info:?}");
        let again = link.signal(started.process, 15, SignalScope::Group).await;
        let told = matches!(&again, Err(CallError::Guest(Failure::Process(ProcessFailure::NotRunning))));
        ensure!(told, "{again:?}");
        let nobody = link.process(guest_link::message::ProcessId(u32::MAX)).await;
        ensure!(matches!(nobody, Err(CallError::Guest(Failure::Process(ProcessFailure::NotFound)))));
        Ok(())
    })
}

#[test]
fn processes_and_their_output_survive_hibernation_and_fork() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let line = "echo before; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo after";
        let started = guest.link().await?.start_detached(ProcessSpec::shell(line)).await?;
        wait::until_async("it has spoken", TIMEOUT, async || {
            Ok(guest.link().await?.process(started.process).await?.stdout.end == 7)
        })
        .await?;
        let child = lab.fork(&guest, 1).await?.pop().context("a child")?;
        guest.hibernate().await?;
        guest.wake().await?;
        for guest in [&guest, &child] {
            let link = guest.link().await?;
            guest.shell("touch /tmp/go").await?;
            let mut process = link.attach(started.process, Offsets::BEGINNING).await?;
            let output = tokio::time::timeout(TIMEOUT, process.collect(OUTPUT_MAX)).await??;
            ensure!(text(&output.stdout) == "before\nafter\n", "{}", text(&output.stdout));
        }
        Ok(())
    })
}

#[test]
fn large_files_go_up_and_come_down_whole() -> Result<()> {
    in_lab(async |lab| {
        const BYTES: usize = 50_000_000;
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let data: Vec<u8> =
            (0..BYTES as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let digest = |bytes: &[u8]| -> String {
            Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let expected = digest(&data);
        ensure!(write(&link, path("/large")?, &data).await? == BYTES as u64);
        let inside = shell(&link, "sha256sum /large").await?;
        ensure!(inside.starts_with(&expected), "{inside}");
        let reader = link.read_file(path("/large")?, 0, None).await?;
        ensure!(reader.entry().size == BYTES as u64);
        let back = reader.read_to_end(BYTES).await?.context("it came back larger")?;
        ensure!(digest(&back) == expected, "it came back different");
        let part = link.read_file(path("/large")?, 1_000_003, Some(10)).await?.read_to_end(100).await?;
        ensure!(part.as_deref() == Some(&data[1_000_003..1_000_013]));
        // An upload that is given up leaves the old file.
        let mut writer = link.write_file(write_spec(path("/large")?))?;
        writer.write(b"half").await?;
        drop(writer);
        ensure!(link.stat(path("/large")?, Links::Follow).await?.size == BYTES as u64);
        ensure!(shell(&link, "ls -A / | grep -c large").await? == "1", "a part of it was left");
        Ok(())
    })
}

#[test]
fn strange_paths_are_paths() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        shell(&link, "mkdir -p /odd; ln -s loop /odd/loop; ln -s nowhere /odd/dangling").await?;
        for name in [
            &b"/odd/with space"[..],
            b"/odd/new\nline",
            b"/odd/%2F",
            b"/odd/\xff\xfe",
            "/odd/ü\u{2028}".as_bytes(),
        ] {
            let at = GuestPath::parse(name)?;
            write(&link, at.clone(), name).await.with_context(|| format!("write {at}"))?;
            let back = link.read_file(at.clone(), 0, None).await?.read_to_end(1000).await?;
            ensure!(back.as_deref() == Some(name), "{at}");
        }
        let spec = ListSpec { path: path("/odd")?, depth: 1 };
        let (entries, truncated) = link.list_directory(spec)?.collect(100).await?;
        ensure!(entries.len() == 7 && !truncated, "{entries:?}");
        ensure!(entries.iter().any(|entry| entry.name == b"\xff\xfe"), "a name that is no text is missing");
        ensure!(link.stat(path("/odd/../odd/./with space")?, Links::Follow).await?.kind == EntryKind::File);

        expect_file(link.stat(path("/missing")?, Links::Follow).await, FileFailure::NotFound)?;
        expect_file(link.read_file(path("/missing")?, 0, None).await.map(drop), FileFailure::NotFound)?;
        expect_file(link.read_file(path("/odd")?, 0, None).await.map(drop), FileFailure::IsDirectory)?;
        expect_file(link.stat(path("/odd/loop")?, Links::Follow).await, FileFailure::TooManyLinks)?;
        ensure!(link.stat(path("/odd/loop")?, Links::Keep).await?.kind == EntryKind::SymbolicLink);
        ensure!(link.read_link(path("/odd/dangling")?).await? == b"nowhere");
        expect_file(write(&link, path("/no/such/file")?, b"x").await, FileFailure::NotFound)?;
        expect_file(write(&link, path("/etc/passwd/file")?, b"x").await, FileFailure::NotDirectory)?;
        expect_file(link.remove(path("/odd")?, RemoveScope::Single).await, FileFailure::NotEmpty)?;
        expect_file(
            link.make_directory(path("/odd")?, Parents::Require, None, None).await,
            FileFailure::Exists,
        )?;
        ensure!(GuestPath::parse(*b"relative").is_err() && GuestPath::parse(*b"/nul\0").is_err());
        Ok(())
    })
}

#[test]
fn directories_are_made_changed_watched_and_removed() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let owner = Some(Owner::User(User::Name("user".to_owned())));
        link.make_directory(path("/made/deep/down")?, Parents::Create, Some(0o750), owner).await?;
        let made = link.stat(path("/made/deep/down")?, Links::Follow).await?;
        ensure!(
            made.kind == EntryKind::Directory && made.mode & 0o777 == 0o750 && made.uid == 1000,
            "{made:?}"
        );

        let mut watch = link.watch(WatchSpec { path: path("/made")?, scope: WatchScope::Recursive }).await?;
        write(&link, path("/made/deep/file")?, b"one").await?;
        link.set_mode(path("/made/deep/file")?, 0o600).await?;
        link.rename(path("/made/deep/file")?, path("/made/moved")?, Parents::Require).await?;
        link.remove(path("/made/moved")?, RemoveScope::Single).await?;
        let mut events = Vec::new();
        while !events.iter().any(|(name, kind)| name == b"moved" && *kind == WatchKind::Removed) {
            let changes = tokio::time::timeout(TIMEOUT, watch.next()).await;
            let changes = changes.with_context(|| format!("only {events:?} came"))??;
            events.extend(changes.into_iter().map(|change| (change.name, change.kind)));
        }
        let moved = |kind: &WatchKind| matches!(kind, WatchKind::MovedTo { .. });
        ensure!(events.iter().any(|(name, kind)| name == b"moved" && moved(kind)), "{events:?}");
        ensure!(events.iter().any(|(name, _)| name == b"deep/file"), "{events:?}");

        shell(&link, "mkdir /many; cd /many; seq 1 20000 | xargs touch").await?;
        let spec = ListSpec { path: path("/many")?, depth: 1 };
        let (entries, truncated) = link.list_directory(spec)?.collect(100_000).await?;
        ensure!(entries.len() == 20_000 && !truncated, "{} entries", entries.len());
        link.remove(path("/many")?, RemoveScope::Recursive).await?;
        expect_file(link.stat(path("/many")?, Links::Follow).await, FileFailure::NotFound)
    })
}

#[test]
fn ports_connections_and_load_are_told() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        let link = guest.link().await?;
        let refused = link.connect(None, 9).await.map(drop);
        ensure!(matches!(refused, Err(CallError::Guest(Failure::ConnectionRefused))), "{refused:?}");
        let server = "import _socket as s\n\
            l=s.socket(s.AF_INET,s.SOCK_STREAM); l.setsockopt(s.SOL_SOCKET,s.SO_REUSEADDR,1)\n\
            l.bind(('127.0.0.1',8088)); l.listen(5)\n\
            while True:\n\
            \x20 fd,_=l._accept(); c=s.socket(fileno=fd)\n\
            \x20 while True:\n\
            \x20  d=c.recv(65536)\n\
            \x20  if not d: break\n\
            \x20  c.sendall(d.upper()) if hasattr(c,'sendall') else c.send(d.upper())\n\
            \x20 c.close()\n";
        link.start_detached(ProcessSpec::argv(["/usr/bin/python3", "-c", server])).await?;
        wait::until_async("it listens", TIMEOUT, async || {
            Ok(link.listening_ports().await?.iter().any(|port| port.port == 8088))
        })
        .await?;
        let ports = link.listening_ports().await?;
        let port = ports.iter().find(|port| port.port == 8088).context("it does not listen")?;
        ensure!(port.program.as_deref().is_some_and(|name| name.starts_with("python3")), "{port:?}");
        for _ in 0..2 {
            let mut connection = link.connect(None, 8088).await?;
            connection.write_all(b"hello").await?;
            let mut answer = [0; 5];
            tokio::time::timeout(TIMEOUT, connection.read_exact(&mut answer)).await??;
            ensure!(&answer == b"HELLO");
            connection.shutdown().await?;
            let mut rest = Vec::new();
            tokio::time::timeout(TIMEOUT, connection.read_to_end(&mut rest)).await??;
            ensure!(rest.is_empty());
        }
        let metrics = link.metrics().await?;
        ensure!(metrics.cpu.count == 1 && metrics.cpu.busy_us <= metrics.cpu.total_us, "{metrics:?}");
        ensure!((200 << 20..=256 << 20).contains(&metrics.memory.total), "{metrics:?}");
        ensure!(metrics.memory.available <= metrics.memory.total && metrics.disk.used < metrics.disk.total);
        ensure!(metrics.tasks > 0);
        Ok(())
    })
}

/// What a guest may send in a second; it sends several times that.
const SENT_PER_SECOND: u64 = 256 << 10;
const SENT: u64 = 2 << 20;

/// Sends to the gateway, which drops it; returns how often the network card had to wait for it.
async fn send_much(guest: &Guest) -> Result<u64> {
    let program = format!(
        "import _socket as s\n\
         gateway=[l.split()[2] for l in open('/proc/net/route') if l.split()[1]=='00000000'][0]\n\
         address='.'.join(str(b) for b in reversed(bytes.fromhex(gateway)))\n\
         u=s.socket(s.AF_INET,s.SOCK_DGRAM)\n\
         for _ in range({}): u.sendto(bytes(1400),(address,9))\n",
        SENT / 1400
    );
    let link = guest.link().await?;
    let output = link.exec(ProcessSpec::argv(["/usr/bin/python3", "-c", &program]), b"", OUTPUT_MAX).await?;
    ensure!(output.exit.status == ExitStatus::Code(0), "{}", text(&output.stderr));
    let counters = guest.counters().await.context("the machine does not say what it counted")?;
    let sent = counters.network_sent_bytes.context("it does not count what it sends")?;
    eprintln!("{counters:?}");
    // What the guest's kernel keeps for later is sent after the program has ended.
    ensure!(sent > SENT / 4, "only {sent} bytes were sent");
    counters.network_throttled.context("it does not count how often it waits")
}

#[test]
fn what_a_guest_sends_keeps_to_its_rate() -> Result<()> {
    run(async || {
        if engine::engine()?.fingerprint().engine != "firecracker" {
            eprintln!("SKIPPED: only Firecracker limits what a guest sends");
            return Ok(());
        }
        let lab = Lab::open(LabSettings::new("networkrate")).await?;
        let guest = lab.create().await?;
        ensure!(send_much(&guest).await? == 0, "it had to wait without a limit");
        guest.remove().await?;
        let rates = Rates { network_bytes: NonZeroU64::new(SENT_PER_SECOND), ..Rates::default() };
        let lab = lab.close().await.open_with(engine::with_rates(rates)?).await?;
        let guest = lab.create().await?;
        ensure!(send_much(&guest).await? > 0, "it never had to wait");
        guest.remove().await?;
        lab.remove().await
    })
}

#[test]
fn a_clean_shutdown_keeps_the_files_and_is_reported() -> Result<()> {
    in_lab(async |lab| {
        let guest = lab.create().await?;
        // Not synced: a clean shutdown does that.
        guest.shell("echo kept > /kept").await?;
        guest.link().await?.shutdown(1000).await?;
        wait::until("its end is reported", TIMEOUT, || guest.phase() == Phase::Died).await?;
        let reason = guest.state().record.died.clone().context("it has no reason")?;
        ensure!(!reason.is_empty());
        guest.start_cold().await?;
        ensure!(guest.shell("cat /kept").await? == "kept");
        Ok(())
    })
}

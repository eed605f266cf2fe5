//! Processes: how they start, speak, listen and end.

use guest_link::client::{CallError, ProcessEvent};
use guest_link::message::{
    Channel, Command, ExitStatus, Failure, InputEnd, Offsets, ProcessFailure, ProcessSpec, SignalScope,
    Stdin, Terminal, TerminalSize, User,
};

use crate::harness::{LIMITS, guest, path, shell, until, within};

fn failure(error: &CallError) -> &ProcessFailure {
    match error {
        CallError::Guest(Failure::Process(failure)) => failure,
        other => panic!("not a process failure: {other:?}"),
    }
}

#[tokio::test]
async fn output_errors_and_exit_code_are_told_apart() {
    let (_guest, link) = guest().await;
    let output = shell(&link, "printf 'out\\0\\342\\200\\250'; printf err >&2; exit 7").await;
    assert_eq!(output.stdout, b"out\0\xe2\x80\xa8");
    assert_eq!(output.stderr, b"err");
    assert_eq!(output.exit.status, ExitStatus::Code(7));
    assert!(!output.exit.timed_out);
    let output = shell(&link, "kill -USR1 $$").await;
    assert_eq!(output.exit.status, ExitStatus::Signal(10));
    assert_eq!(output.exit.status.shell_code(), 138);
}

#[tokio::test]
async fn a_program_gets_what_was_asked_for() {
    let (_guest, link) = guest().await;
    let mut spec = ProcessSpec::argv([
        "sh",
        "-c",
        "pwd; echo $A $HOME $USER $LANG; id -u; cut -d' ' -f5,6 /proc/self/stat; ls /proc/self/fd | wc -l",
    ]);
    spec.cwd = Some(path("/usr"));
    spec.env = vec![("A".into(), "b c".into()), ("HOME".into(), "/tmp".into())];
    let output = within(link.exec(spec, b"", LIMITS)).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["/usr", "b c /tmp root C.UTF-8", "0"]);
    let (group, session) = lines[3].split_once(' ').unwrap();
    assert_eq!(group, session, "a session and a group of its own");
    // Its three, and the one that lists them.
    assert_eq!(lines[4].trim(), "4");
}

#[tokio::test]
async fn a_program_runs_as_the_user_asked_for() {
    let (_guest, link) = guest().await;
    for user in [User::Name("nobody".into()), User::Ids { uid: 65_534, gid: None }] {
        let mut spec = ProcessSpec::shell("id -u; id -g; id -G; echo $USER; pwd");
        spec.user = Some(user);
        let output = within(link.exec(spec, b"", LIMITS)).await.unwrap();
        // Its home does not exist, so it starts at the root.
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "65534\n65534\n65534\nnobody\n/\n");
    }
}

#[tokio::test]
async fn what_cannot_start_is_an_error_not_an_exit_code() {
    let (_guest, link) = guest().await;
    let start =
        async |spec: ProcessSpec| failure(&within(link.exec(spec, b"", LIMITS)).await.unwrap_err()).clone();
    assert_eq!(start(ProcessSpec::argv(["no-such-program"])).await, ProcessFailure::ProgramNotFound);
    assert_eq!(start(ProcessSpec::argv(["/no/such/program"])).await, ProcessFailure::ProgramNotFound);
    assert_eq!(start(ProcessSpec::argv(["/etc/passwd"])).await, ProcessFailure::NotExecutable);
    assert_eq!(start(ProcessSpec::argv(["/tmp"])).await, ProcessFailure::NotExecutable);
    assert_eq!(start(ProcessSpec::argv::<String>([])).await, ProcessFailure::InvalidCommand);
    assert_eq!(start(ProcessSpec::argv(["a\0b"])).await, ProcessFailure::InvalidCommand);
    let mut spec = ProcessSpec::shell("true");
    spec.cwd = Some(path("/no/such/directory"));
    assert_eq!(start(spec).await, ProcessFailure::WorkingDirectory);
    let mut spec = ProcessSpec::shell("true");
    spec.user = Some(User::Name("no such user".into()));
    assert_eq!(start(spec).await, ProcessFailure::UnknownUser);
    // Nothing of it is left, and the guest is as before.
    assert!(within(link.processes()).await.unwrap().is_empty());
    assert_eq!(shell(&link, "echo fine").await.stdout, b"fine\n");
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let (_guest, link) = guest().await;
    let mut spec = ProcessSpec::shell("sleep 1000 & echo $!; sleep 1000; echo late");
    spec.timeout_ms = Some(200);
    let output = within(link.exec(spec, b"", LIMITS)).await.unwrap();
    assert!(output.exit.timed_out);
    assert_eq!(output.exit.status, ExitStatus::Signal(9));
    let background = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    // The orphan belongs to the machine's PID 1 in this test, which may take a moment to collect it.
    until(async || {
        let state = std::fs::read_to_string(format!("/proc/{background}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_background_child_neither_holds_the_answer_nor_dies_with_it() {
    let (_guest, link) = guest().await;
    let output =
        shell(&link, "(while [ ! -e /proc/1/no-such ]; do echo tick; sleep 0.05; done) & echo $!").await;
    assert_eq!(output.exit.status, ExitStatus::Code(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let background = text.lines().find(|line| *line != "tick").unwrap().to_owned();
    // Its later output goes to the ring of the process that left it.
    until(async || {
        let info = within(link.process(output.process)).await.unwrap();
        (info.exit.is_some() && info.stdout.end > text.len() as u64 + 20).then_some(())
    })
    .await;
    assert_eq!(shell(&link, &format!("kill {background} && echo alive")).await.stdout, b"alive\n");
}

#[tokio::test]
async fn large_output_arrives_whole_and_in_order() {
    let (_guest, link) = guest().await;
    let output = shell(&link, "seq 1 2000000").await;
    let expected: String = (1..=2_000_000).map(|n| format!("{n}\n")).collect();
    assert!(output.stdout == expected.as_bytes());
}

#[tokio::test]
async fn a_slow_reader_slows_its_process_and_nobody_else() {
    let (_guest, link) = guest().await;
    let mut slow =
        within(link.start(ProcessSpec::shell("head -c 20000000 /dev/zero; echo end >&2"))).await.unwrap();
    // Nobody reads it while others talk.
    for _ in 0..20 {
        assert_eq!(shell(&link, "echo quick").await.stdout, b"quick\n");
    }
    let info = within(link.process(slow.id())).await.unwrap();
    assert!(info.exit.is_none(), "the process waits for its reader");
    let output = within(slow.collect(LIMITS)).await.unwrap();
    assert_eq!((output.stdout.len(), output.stderr.as_slice()), (20_000_000, &b"end\n"[..]));
}

#[tokio::test]
async fn input_flows_with_back_pressure_and_can_be_closed() {
    let (_guest, link) = guest().await;
    let data: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let output = within(link.exec(ProcessSpec::argv(["cat"]), &data, LIMITS)).await.unwrap();
    assert!(output.stdout == data);
    // A process that does not read, and one that ends early.
    let output =
        within(link.exec(ProcessSpec::shell("exec <&-; sleep 0.1; echo done"), &data, LIMITS)).await.unwrap();
    assert_eq!(output.stdout, b"done\n");
    let output = within(link.exec(ProcessSpec::argv(["true"]), &data, LIMITS)).await.unwrap();
    assert_eq!(output.exit.status, ExitStatus::Code(0));
}

#[tokio::test]
async fn input_can_come_from_another_stream() {
    let (_guest, link) = guest().await;
    let mut spec = ProcessSpec::shell("read a; read b; echo $a-$b; cat");
    spec.stdin = Stdin::Pipe;
    let mut process = within(link.start(spec)).await.unwrap();
    within(link.input(process.id(), b"one\n", InputEnd::KeepOpen)).await.unwrap();
    within(link.input(process.id(), b"two\nrest", InputEnd::Close)).await.unwrap();
    assert_eq!(within(process.collect(LIMITS)).await.unwrap().stdout, b"one-two\nrest");
    let error = within(link.input(process.id(), b"x", InputEnd::Close)).await.unwrap_err();
    assert_eq!(*failure(&error), ProcessFailure::NotRunning);
    let closed = within(link.start(ProcessSpec::argv(["sleep", "1000"]))).await.unwrap();
    let error = within(link.input(closed.id(), b"x", InputEnd::Close)).await.unwrap_err();
    assert_eq!(*failure(&error), ProcessFailure::StdinClosed);
    within(link.signal(closed.id(), 9, SignalScope::Group)).await.unwrap();
}

#[tokio::test]
async fn a_terminal_is_one() {
    let (_guest, link) = guest().await;
    let mut spec = ProcessSpec::shell(
        "tty >/dev/null && stty size && echo $TERM && read line && echo got $line; stty size; cat",
    );
    spec.terminal =
        Some(Terminal { size: TerminalSize { columns: 91, rows: 17 }, term: "xterm-256color".into() });
    let mut process = within(link.start(spec)).await.unwrap();
    let input = process.take_input().unwrap();
    let mut seen = String::new();
    let mut read_until = async |process: &mut guest_link::client::Process, text: &str| {
        while !seen.contains(text) {
            match within(process.next()).await.unwrap() {
                ProcessEvent::Output { channel: Channel::Stdout, data, .. } => {
                    seen.push_str(&String::from_utf8_lossy(&data))
                }
                other => panic!("{other:?} before {text:?} in {seen:?}"),
            }
        }
    };
    read_until(&mut process, "17 91\r\nxterm-256color\r\n").await;
    within(link.resize(process.id(), TerminalSize { columns: 120, rows: 40 })).await.unwrap();
    within(input.write_all(b"hello\r")).await.unwrap();
    read_until(&mut process, "got hello\r\n40 120\r\n").await;
    // The end-of-file character ends `cat`.
    input.close();
    loop {
        if let ProcessEvent::Exited(exit) = within(process.next()).await.unwrap() {
            assert_eq!(exit.status, ExitStatus::Code(0));
            break;
        }
    }
    let error = within(link.resize(process.id(), TerminalSize { columns: 1, rows: 1 })).await.unwrap_err();
    assert_eq!(*failure(&error), ProcessFailure::NoTerminal);
}

#[tokio::test]
async fn a_process_outlives_its_stream_and_can_be_followed_again() {
    let (_guest, link) = guest().await;
    let mut spec = ProcessSpec::shell("echo first; read x; echo second; echo error >&2; exit 3");
    spec.stdin = Stdin::Pipe;
    spec.tag = Some("mine".into());
    let mut process = within(link.start(spec)).await.unwrap();
    let first = within(process.next()).await.unwrap();
    assert_eq!(
        first,
        ProcessEvent::Output { channel: Channel::Stdout, offset: 0, data: b"first\n".to_vec() }
    );
    let id = process.id();
    drop(process);
    let listed = within(link.processes()).await.unwrap();
    assert_eq!((listed.len(), listed[0].tag.as_deref(), listed[0].exit), (1, Some("mine"), None));
    assert!(matches!(&listed[0].command, Command::Shell(line) if line.starts_with("echo first")));
    within(link.input(id, b"\n", InputEnd::KeepOpen)).await.unwrap();
    until(async || within(link.process(id)).await.unwrap().exit).await;
    let mut again = within(link.attach(id, Offsets::BEGINNING)).await.unwrap();
    let output = within(again.collect(LIMITS)).await.unwrap();
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"first\nsecond\n"[..], &b"error\n"[..])
    );
    assert_eq!(output.exit.status, ExitStatus::Code(3));
    let mut rest = within(link.attach(id, Offsets { stdout: 8, stderr: 6 })).await.unwrap();
    let event = within(rest.next()).await.unwrap();
    assert_eq!(event, ProcessEvent::Output { channel: Channel::Stdout, offset: 8, data: b"cond\n".to_vec() });
    assert!(matches!(within(rest.next()).await.unwrap(), ProcessEvent::Exited(_)));
}

#[tokio::test]
async fn a_detached_process_never_waits_and_its_lost_output_is_a_gap() {
    let (_guest, link) = guest().await;
    let spec = ProcessSpec::shell("head -c 3000000 /dev/zero; printf end");
    let started = within(link.start_detached(spec)).await.unwrap();
    until(async || within(link.process(started.process)).await.unwrap().exit).await;
    let mut process = within(link.attach(started.process, Offsets::BEGINNING)).await.unwrap();
    let ProcessEvent::Gap { channel: Channel::Stdout, from: 0, to } = within(process.next()).await.unwrap()
    else {
        panic!("the beginning is lost")
    };
    let mut kept = Vec::new();
    loop {
        match within(process.next()).await.unwrap() {
            ProcessEvent::Output { offset, data, .. } => {
                assert_eq!(offset, to + kept.len() as u64);
                kept.extend(data);
            }
            ProcessEvent::Exited(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(to + kept.len() as u64, 3_000_003);
    assert!(kept.ends_with(b"\0end") && kept.len() > 900_000);
}

#[tokio::test]
async fn two_followers_each_get_everything() {
    let (_guest, link) = guest().await;
    let mut spec = ProcessSpec::shell("read x; seq 1 200000");
    spec.stdin = Stdin::Pipe;
    let mut one = within(link.start(spec)).await.unwrap();
    let mut two = within(link.attach(one.id(), Offsets::BEGINNING)).await.unwrap();
    within(link.input(one.id(), b"\n", InputEnd::Close)).await.unwrap();
    let (first, second) = within(async { tokio::join!(one.collect(LIMITS), two.collect(LIMITS)) }).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.stdout == second.stdout && first.stdout.ends_with(b"200000\n"));
    assert_eq!(first.exit, second.exit);
}

#[tokio::test]
async fn signals_reach_the_leader_or_the_group() {
    let (_guest, link) = guest().await;
    let mut process = within(link.start(ProcessSpec::shell(
        "trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.02; done",
    )))
    .await
    .unwrap();
    assert!(matches!(within(process.next()).await.unwrap(), ProcessEvent::Output { .. }));
    within(link.signal(process.id(), 15, SignalScope::Leader)).await.unwrap();
    let output = within(process.collect(LIMITS)).await.unwrap();
    assert_eq!((output.stdout.as_slice(), output.exit.status), (&b"term\n"[..], ExitStatus::Code(5)));
    let error = within(link.signal(process.id(), 9, SignalScope::Group)).await.unwrap_err();
    assert_eq!(*failure(&error), ProcessFailure::NotRunning);
    let error =
        within(link.signal(guest_link::message::ProcessId(99), 9, SignalScope::Group)).await.unwrap_err();
    assert_eq!(*failure(&error), ProcessFailure::NotFound);
}

#[tokio::test]
async fn many_at_once_and_the_oldest_ended_are_forgotten() {
    let (_guest, link) = guest().await;
    let mut tasks = Vec::new();
    for n in 0..150 {
        let link = link.clone();
        tasks.push(tokio::spawn(async move { shell(&link, &format!("echo {n}")).await.stdout }));
    }
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(within(task).await.unwrap(), format!("{n}\n").as_bytes());
    }
    until(async || (within(link.processes()).await.unwrap().len() <= 64).then_some(())).await;
}

#[tokio::test]
async fn a_command_line_may_be_longer_than_a_frame() {
    let (_guest, link) = guest().await;
    let long = "x".repeat(100_000);
    let output = shell(&link, &format!("printf %s {long} | wc -c")).await;
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "100000");
}

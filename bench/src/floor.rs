//! The floor: the engine's program, the snapshot, the first reply, and nothing else.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use guest_link::client::{Link, Opening};
use machine::qemu::{Accelerator, LINK_PORT_NAME};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::samples::{Samples, say};
use crate::setup::{Bench, FIRMWARE};

/// What the engine's program needs by itself.
#[derive(Debug, Serialize)]
pub(crate) struct Floor {
    /// From starting the program to the guest's first reply.
    pub(crate) spawned: Samples,
    /// From the request to the first reply, with a program that was started before and waited without a guest.
    pub(crate) waited: Samples,
    /// CPU time of the program until the first reply.
    pub(crate) cpu: Samples,
}

/// Ends the program whatever happens.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) async fn measure(bench: &Bench, count: usize) -> anyhow::Result<Floor> {
    let mut floor =
        Floor { spawned: Samples::default(), waited: Samples::default(), cpu: Samples::default() };
    let lease = bench.node.network().acquire().await.context("get a network card")?;
    for _ in 0..count {
        match once(bench, &lease.tap, Ahead::Nothing).await {
            Ok((ms, cpu)) => {
                floor.spawned.add(Ok::<_, anyhow::Error>(ms));
                floor.cpu.add(Ok::<_, anyhow::Error>(cpu));
            }
            Err(error) => floor.spawned.add(Err(error)),
        }
    }
    for _ in 0..count {
        floor.waited.add(once(bench, &lease.tap, Ahead::Program).await.map(|(ms, _)| ms));
    }
    bench.node.network().release(lease.slot).wait().await.context("give the network card back")?;
    floor.spawned.tell("floor: program started, first reply");
    floor.waited.tell("floor: program was waiting, first reply");
    floor.cpu.tell("floor: CPU time to the first reply");
    Ok(floor)
}

/// What is done before the clock starts.
#[derive(PartialEq, Eq)]
enum Ahead {
    Nothing,
    Program,
}

async fn once(bench: &Bench, tap: &OwnedFd, ahead: Ahead) -> anyhow::Result<(f64, f64)> {
    let directory = bench.data_dir.join("pool");
    let disk = directory.join("floor-disk");
    drop(std::fs::remove_file(&disk));
    storage::clone_file(&bench.template_file("disk"), &disk)?;
    let (control, control_theirs) = pair()?;
    let (link, link_theirs) = pair()?;
    let devices = File::open(bench.template_file("devices"))?;
    let mut started = Instant::now();
    let program =
        Program(spawn(bench, &disk, tap, [control_theirs.as_fd(), link_theirs.as_fd(), devices.as_fd()])?);
    drop((control_theirs, link_theirs));
    let (read, mut write) = UnixStream::from_std(control)?.into_split();
    let mut lines = BufReader::new(read).lines();
    lines.next_line().await?.context("no greeting")?;
    qmp(&mut lines, &mut write, json!({ "execute": "qmp_capabilities" })).await?;
    if ahead == Ahead::Program {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        started = Instant::now();
    }
    qmp(
        &mut lines,
        &mut write,
        json!({ "execute": "migrate-incoming", "arguments": { "uri": "file:/dev/fdset/3" } }),
    )
    .await?;
    qmp(&mut lines, &mut write, json!({ "execute": "cont" })).await?;
    Link::open(UnixStream::from_std(link)?, Opening::Clean, None).await.context("no first reply")?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    Ok((ms, cpu_ms(program.0.id())?))
}

fn pair() -> anyhow::Result<(std::os::unix::net::UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((ours, theirs.into()))
}

type Lines = tokio::io::Lines<BufReader<tokio::net::unix::OwnedReadHalf>>;

async fn qmp(
    lines: &mut Lines,
    write: &mut tokio::net::unix::OwnedWriteHalf,
    command: Value,
) -> anyhow::Result<()> {
    write.write_all(format!("{command}\n").as_bytes()).await?;
    while let Some(line) = lines.next_line().await? {
        let answer: Value = serde_json::from_str(&line)?;
        if answer.get("return").is_some() {
            return Ok(());
        }
        if answer.get("error").is_some() {
            bail!("{command}: {answer}");
        }
    }
    bail!("the program ended")
}

fn spawn(bench: &Bench, disk: &Path, tap: &OwnedFd, files: [BorrowedFd<'_>; 3]) -> anyhow::Result<Child> {
    let [control, link, devices] = files;
    let memory = bench.template_file("memory");
    let mib = std::fs::metadata(&memory)?.len() >> 20;
    let (accel, cpu) = match bench.accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Tcg => ("tcg", "max"),
    };
    // Descriptors keep their numbers; they only must survive the exec. One program is started at a time, so no other gets them.
    for descriptor in [control, link, devices, tap.as_fd()] {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
    }
    let mut command = Command::new(&bench.qemu);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-bios", FIRMWARE])
        .args(["-M", "microvm,pic=on,pit=on,rtc=on,isa-serial=on,auto-kernel-cmdline=off,memory-backend=ram"])
        .args(["-accel", accel, "-cpu", cpu, "-smp", "1", "-m", &mib.to_string()])
        .args([
            "-object",
            &format!(
                "memory-backend-file,id=ram,size={mib}M,mem-path={},share=off,readonly=on,rom=off",
                memory.display()
            ),
        ])
        .args([
            "-chardev",
            &format!("socket,id=control,fd={}", control.as_raw_fd()),
            "-mon",
            "chardev=control,mode=control",
        ])
        .args(["-chardev", "ringbuf,id=console,size=65536", "-serial", "chardev:console"])
        .args(["-chardev", &format!("socket,id=link,fd={}", link.as_raw_fd())])
        .args(["-device", "virtio-serial-device,max_ports=2"])
        .args(["-device", &format!("virtserialport,chardev=link,name={LINK_PORT_NAME}")])
        .args([
            "-blockdev",
            &format!("driver=file,node-name=disk,filename={},locking=off,discard=unmap", disk.display()),
        ])
        .args(["-device", "virtio-blk-device,drive=disk"])
        .args([
            "-netdev",
            &format!("tap,id=net,fd={},vhost=off", tap.as_raw_fd()),
            "-device",
            "virtio-net-device,netdev=net,mac=06:00:00:00:00:02,guest_announce=off",
        ])
        .args(["-add-fd", &format!("fd={},set=3", devices.as_raw_fd())])
        .args(["-incoming", "defer", "-global", "migration.send-configuration=off"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.spawn().context("start the engine's program")
}

/// CPU time of all of a process's threads.
pub(crate) fn cpu_ms(pid: u32) -> anyhow::Result<f64> {
    let mut nanoseconds = 0u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let schedule = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds +=
            schedule.split_ascii_whitespace().next().context("unreadable schedule")?.parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e6)
}

/// A figure with its bound.
pub(crate) fn against(name: &str, value: f64, bound: f64) {
    let verdict = if value <= bound { "within" } else { "ABOVE" };
    say(&format!("    {name}: {value:.2}, {verdict} {bound:.2}"));
}

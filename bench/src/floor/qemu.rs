//! QEMU's floor. Its program takes open descriptors, so nothing is made for it but a clone of the disk.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use engines::EngineConfig;
use guest_link::client::{Link, Opening};
use machine::VOLUMES_MAX;
use machine::qemu::{Accelerator, LINK_PORT_NAME, NETWORK_CARD};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{Program, Running};
use crate::setup::Bench;

/// What the engine's program is given, made before the clock starts.
pub(crate) struct Rig {
    disk: PathBuf,
    devices: File,
    control: (std::os::unix::net::UnixStream, OwnedFd),
    link: (std::os::unix::net::UnixStream, OwnedFd),
}

/// The engine's program, started and waiting for a guest.
pub(crate) struct Engine {
    program: Program,
    lines: Lines,
    write: tokio::net::unix::OwnedWriteHalf,
    link: Option<std::os::unix::net::UnixStream>,
}

impl Rig {
    /// `disk` is the name of a clone that nobody else uses meanwhile.
    pub(crate) fn prepare(bench: &Bench, disk: &str) -> anyhow::Result<Self> {
        let disk = bench.data_dir.join("pool").join(disk);
        drop(std::fs::remove_file(&disk));
        storage::clone_file(&bench.template_file("disk"), &disk)?;
        let devices = File::open(bench.template_file("devices"))?;
        Ok(Self { disk, devices, control: pair()?, link: pair()? })
    }

    /// Starts the program with `extra` arguments and waits until it listens.
    pub(crate) async fn start(
        self,
        bench: &Bench,
        tap: &OwnedFd,
        extra: &[String],
    ) -> anyhow::Result<Engine> {
        let files = [self.control.1.as_fd(), self.link.1.as_fd(), self.devices.as_fd()];
        let program = Program(spawn(bench, &self.disk, tap, files, extra)?);
        let (read, write) = UnixStream::from_std(self.control.0)?.into_split();
        let lines = BufReader::new(read).lines();
        let mut engine = Engine { program, lines, write, link: Some(self.link.0) };
        engine.lines.next_line().await?.context("no greeting")?;
        engine.run(json!({ "execute": "qmp_capabilities" })).await?;
        Ok(engine)
    }
}

impl Running for Engine {
    fn id(&self) -> u32 {
        self.program.0.id()
    }

    async fn first_reply(&mut self) -> anyhow::Result<()> {
        let link = self.load().await?;
        Link::open(link, Opening::Clean, None).await.context("no first reply")?;
        Ok(())
    }
}

impl Engine {
    /// Loads the guest, lets it run and gives the link to it.
    pub(crate) async fn load(&mut self) -> anyhow::Result<UnixStream> {
        let uri = json!({ "uri": "file:/dev/fdset/3" });
        self.run(json!({ "execute": "migrate-incoming", "arguments": uri })).await?;
        self.run(json!({ "execute": "cont" })).await?;
        Ok(UnixStream::from_std(self.link.take().context("loaded twice")?)?)
    }

    /// Runs one command of the control protocol.
    pub(crate) async fn run(&mut self, command: Value) -> anyhow::Result<Value> {
        self.write.write_all(format!("{command}\n").as_bytes()).await?;
        while let Some(line) = self.lines.next_line().await? {
            let mut answer: Value = serde_json::from_str(&line)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if answer.get("error").is_some() {
                bail!("{command}: {answer}");
            }
        }
        bail!("the program ended")
    }
}

fn pair() -> anyhow::Result<(std::os::unix::net::UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((ours, theirs.into()))
}

type Lines = tokio::io::Lines<BufReader<tokio::net::unix::OwnedReadHalf>>;

fn spawn(
    bench: &Bench,
    disk: &Path,
    tap: &OwnedFd,
    files: [BorrowedFd<'_>; 3],
    extra: &[String],
) -> anyhow::Result<Child> {
    let EngineConfig::Qemu(engine) = &bench.engine else { bail!("this floor is QEMU's") };
    let [control, link, devices] = files;
    let memory = bench.template_file("memory");
    let mib = std::fs::metadata(&memory)?.len() >> 20;
    let (accel, cpu) = match engine.accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Tcg => ("tcg", "max"),
    };
    // Descriptors keep their numbers; they only must survive the exec. Another program that is started meanwhile gets them too,
    // which does no harm here.
    for descriptor in [control, link, devices, tap.as_fd()] {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
    }
    let mut command = Command::new(&engine.program);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .arg("-bios")
        .arg(&engine.firmware)
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
        .args(["-device", "virtio-blk-device,drive=disk"]);
    for slot in 0..VOLUMES_MAX {
        command
            .args(["-blockdev", &format!("driver=null-co,node-name=volume{slot},size=0,read-zeroes=on")])
            .args(["-device", &format!("virtio-blk-device,drive=volume{slot}")]);
    }
    command
        .args([
            "-netdev",
            &format!("tap,id=net,fd={},vhost=off", tap.as_raw_fd()),
            "-device",
            &format!("virtio-net-device,netdev=net,{NETWORK_CARD}"),
        ])
        .args(["-add-fd", &format!("fd={},set=3", devices.as_raw_fd())])
        .args(["-incoming", "defer", "-global", "migration.send-configuration=off"])
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.spawn().context("start the engine's program")
}

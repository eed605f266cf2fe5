//! A machine and its control socket, ended with the test.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use guest_link::client::{Link, Opening};
use guest_link::message::{Identity, IdentityConfirmed};

const MEMORY_MIB: u32 = 256;

pub(crate) struct Machine {
    process: Child,
    control: BufReader<UnixStream>,
    link: PathBuf,
    pub(crate) started: Instant,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where kernel, initramfs and disk are; `None`, loudly, where nobody said.
pub(crate) fn parts() -> Option<PathBuf> {
    let parts = std::env::var_os("PANDASTACK_TEST_GUEST_DIR").map(PathBuf::from);
    if parts.is_none() {
        eprintln!("SKIPPED: PANDASTACK_TEST_GUEST_DIR is not set, no machine was started");
    }
    parts
}

/// How a machine gets its memory.
pub(crate) enum Start<'a> {
    /// From the kernel; memory is written to the file.
    Boot,
    /// From a device state; memory is a private copy of the file.
    Restore(&'a Path),
}

impl Machine {
    pub(crate) fn start(
        directory: &Path,
        name: &str,
        parts: &Path,
        memory: &Path,
        disk: &Path,
        start: &Start<'_>,
    ) -> Machine {
        let started = Instant::now();
        let at = |kind: &str| directory.join(format!("{name}.{kind}"));
        let (link, control) = (at("link"), at("qmp"));
        let share = if matches!(start, Start::Boot) { "share=on" } else { "share=off,readonly=on,rom=off" };
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-nographic",
                "-no-reboot",
                "-accel",
                "tcg",
                "-cpu",
                "max",
            ])
            .args([
                "-M",
                "microvm,pic=on,pit=on,rtc=on,isa-serial=on,memory-backend=ram",
                "-m",
                &MEMORY_MIB.to_string(),
            ])
            .arg("-serial")
            .arg(format!("file:{}", at("serial").display()))
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={MEMORY_MIB}M,mem-path={},{share}",
                memory.display()
            ))
            .args(["-device", "virtio-serial-device"])
            .arg("-chardev")
            .arg(format!("socket,id=link,path={},server=on,wait=off", link.display()))
            .args(["-device", "virtserialport,chardev=link,name=pandastack.link"])
            .arg("-drive")
            .arg(format!("id=disk,file={},format=raw,if=none,cache=unsafe", disk.display()))
            .args(["-device", "virtio-blk-device,drive=disk"])
            .args([
                "-netdev",
                "hubport,id=net,hubid=0",
                "-device",
                "virtio-net-device,netdev=net,mac=06:00:ac:14:00:02",
            ])
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", control.display()))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(at("err")).unwrap());
        match start {
            Start::Boot => {
                let arguments = format!("console=ttyS0 quiet reboot=t panic=-1 tsc_early_khz={}", tsc_khz());
                command.arg("-kernel").arg(parts.join("vmlinux")).arg("-initrd").arg(parts.join("initrd"));
                command.args(["-append", &arguments]);
            }
            Start::Restore(devices) => {
                command.arg("-incoming").arg(format!("file:{}", devices.display()));
                command.args(["-global", "migration.send-configuration=off"]);
            }
        }
        let process = command.spawn().unwrap();
        let control = loop {
            match UnixStream::connect(&control) {
                Ok(control) => break control,
                Err(_) if started.elapsed() < Duration::from_secs(30) => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(error) => panic!("{error}: {}", std::fs::read_to_string(at("err")).unwrap()),
            }
        };
        let mut machine = Machine { process, control: BufReader::new(control), link, started };
        machine.line();
        machine.qmp("qmp_capabilities", "{}");
        if let Start::Restore(_) = start {
            while machine.qmp("query-status", "{}").contains("inmigrate") {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        machine
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.control.read_line(&mut line).unwrap() > 0, "the machine is gone");
        line
    }

    pub(crate) fn qmp(&mut self, command: &str, arguments: &str) -> String {
        let text = format!("{{\"execute\":\"{command}\",\"arguments\":{arguments}}}\n");
        self.control.get_mut().write_all(text.as_bytes()).unwrap();
        loop {
            let line = self.line();
            assert!(!line.contains("\"error\""), "{command}: {line}");
            if line.contains("\"return\"") {
                return line;
            }
        }
    }

    pub(crate) async fn open(
        &self,
        opening: Opening,
        identity: Option<Identity>,
    ) -> (Link, Option<IdentityConfirmed>) {
        let socket = tokio::net::UnixStream::connect(&self.link).await.unwrap();
        within(Link::open(socket, opening, identity)).await.unwrap()
    }

    /// Saves devices and disk of a stopped machine; its memory is in its file.
    pub(crate) fn save(&mut self, devices: &Path) {
        self.qmp(
            "xen-save-devices-state",
            &format!("{{\"filename\":{:?},\"live\":true}}", devices.display().to_string()),
        );
    }

    /// Waits until the machine has ended by itself.
    pub(crate) async fn ended(&mut self) {
        within(async {
            while self.process.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// CPU time of the whole machine so far.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("took more than two minutes")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let done =
        Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Frequency of the time-stamp counter: the kernel prints it, unless its log is closed.
fn tsc_khz() -> u64 {
    let log =
        Command::new("dmesg").output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let detected = log.ok().and_then(|log| {
        let rest = log.split("tsc: Detected ").nth(1)?;
        rest.split(' ').next()?.parse::<f64>().ok()
    });
    let mhz = detected.unwrap_or_else(|| {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let line = info.lines().find(|line| line.starts_with("cpu MHz")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    });
    (mhz * 1000.0) as u64
}

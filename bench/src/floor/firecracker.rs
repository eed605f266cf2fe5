//! Firecracker's floor. Its program opens everything by the names that its snapshot remembers, so it gets a directory where they are, and
//! finds its tap in the namespace that it lies in. All of that is made before the clock starts.

mod room;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use guest_link::client::{Link, Opening};
use machine::firecracker::{self, LINK_PORT, Remembered, hand_over_tap};
use machine::jail::{JailRoot, RootContent};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{Program, Running};
use crate::setup::Bench;
use room::{Door, Room};

/// How long a program may take to listen, or a guest to say something.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between looks at whether the program listens.
const POLL: Duration = Duration::from_micros(200);
/// How long one try to reach a guest may take. One that has just been loaded drops the connections of its past, and with them a new
/// one that came too early.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
/// Where the program listens for requests, in its root.
const CONTROL: &str = "/own/control.sock";
/// What it loads.
const MEMORY: &str = "/memory";
const DEVICES: &str = "/devices";
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// A root for the program, and a network namespace with its tap.
pub(super) struct Stand {
    root: PathBuf,
    disk: PathBuf,
    link: PathBuf,
    /// Files, and where in the root they are to be.
    files: Vec<(PathBuf, PathBuf)>,
    network: OwnedFd,
}

/// Where a name of the root is outside of it.
fn inside(root: &Path, name: &str) -> PathBuf {
    root.join(name.trim_start_matches('/'))
}

impl Stand {
    pub(super) fn make(bench: &Bench, program: &Path, name: &str, tap: OwnedFd) -> anyhow::Result<Self> {
        let root = bench.data_dir.join(name);
        drop(fs::remove_dir_all(&root));
        let content = RootContent { program, data: &[], directories: &["own", "dev/net"] };
        JailRoot::ensure(&root, &content).context("make a root for the floor")?;
        let disk = bench.data_dir.join("pool").join(name);
        let Remembered { root: root_disk, volumes, link } = firecracker::remembered();
        let files = vec![
            (bench.template_file("memory"), inside(&root, MEMORY)),
            (bench.template_file("devices"), inside(&root, DEVICES)),
            (disk.clone(), inside(&root, &root_disk)),
            ("/dev/kvm".into(), root.join("dev/kvm")),
            ("/dev/net/tun".into(), root.join("dev/net/tun")),
        ];
        let empty = volumes.iter().map(|volume| inside(&root, volume));
        for path in empty.chain(files.iter().map(|(_, place)| place.clone())) {
            fs::write(&path, b"").with_context(|| format!("make {}", path.display()))?;
        }
        let network = hand_over_tap(tap, 0).context("hand the tap over")?;
        Ok(Self { link: inside(&root, &link), root, disk, files, network })
    }

    /// Everything up to the program's start.
    pub(super) async fn prepare(&self, bench: &Bench) -> anyhow::Result<Rig> {
        drop(fs::remove_file(&self.disk));
        storage::clone_file(&bench.template_file("disk"), &self.disk)?;
        let control = inside(&self.root, CONTROL);
        for socket in [&control, &self.link] {
            drop(fs::remove_file(socket));
        }
        let room =
            Room { root: self.root.clone(), network: self.network.try_clone()?, files: self.files.clone() };
        let door = room.furnish().await.context("furnish the floor's room")?;
        Ok(Rig { door, control, link: self.link.clone() })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
        drop(fs::remove_file(&self.disk));
    }
}

/// A thread that stands where the program is to start.
pub(super) struct Rig {
    door: Door,
    control: PathBuf,
    link: PathBuf,
}

impl Rig {
    /// Starts the program and waits until it listens.
    pub(super) async fn start(self) -> anyhow::Result<Waiting> {
        let child = self.door.start(&["--api-sock", CONTROL, "--level", "Error"]).await?;
        let mut program = Program(child);
        let control = listening(&self.control, &mut program.0).await?;
        Ok(Waiting { program, control, link: self.link })
    }
}

/// Tries the socket until somebody answers there.
async fn listening(socket: &Path, child: &mut Child) -> anyhow::Result<UnixStream> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return Ok(stream);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the program ended with {status}");
        }
        ensure!(Instant::now() < until, "the program does not listen");
        // Finer than the runtime's clock.
        tokio::task::block_in_place(|| std::thread::sleep(POLL));
    }
}

/// The program, listening and without a guest.
pub(super) struct Waiting {
    program: Program,
    control: UnixStream,
    link: PathBuf,
}

impl Running for Waiting {
    fn id(&self) -> u32 {
        self.program.0.id()
    }

    async fn first_reply(&mut self) -> anyhow::Result<()> {
        let memory = json!({ "backend_path": MEMORY, "backend_type": "File" });
        let body = json!({ "snapshot_path": DEVICES, "mem_backend": memory, "resume_vm": true });
        tokio::time::timeout(TIMEOUT, self.put("/snapshot/load", &body.to_string()))
            .await
            .context("no answer to the request to load")??;
        let until = Instant::now() + TIMEOUT;
        loop {
            match tokio::time::timeout(TRY_TIMEOUT, greet(&self.link)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) if Instant::now() > until => return Err(error.context("no first reply")),
                Err(_) if Instant::now() > until => bail!("no first reply"),
                _ => {}
            }
        }
    }
}

impl Waiting {
    async fn put(&mut self, path: &str, body: &str) -> anyhow::Result<()> {
        let head = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        self.control.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") && answer.len() < ANSWER_BYTES_MAX {
            ensure!(self.control.read_buf(&mut answer).await? > 0, "the program hung up");
        }
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with("HTTP/1.1 204"), "{path}: {answer}");
        Ok(())
    }
}

/// One connection to the guest, and its first words on it.
async fn greet(socket: &Path) -> anyhow::Result<Link> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("CONNECT {LINK_PORT}\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while answer.last() != Some(&b'\n') {
        ensure!(answer.len() < ANSWER_BYTES_MAX, "an endless answer");
        answer.push(stream.read_u8().await?);
    }
    ensure!(answer.starts_with(b"OK "), "the guest does not listen");
    Ok(Link::open(stream, Opening::Clean, None).await?.0)
}

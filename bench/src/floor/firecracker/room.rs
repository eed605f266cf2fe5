//! A thread that moves to where a program is to start, and waits there for the word.
//!
//! What it starts begins in its root and its namespaces, so nothing of that is done once the clock runs. Files are bound into the root
//! in a mount namespace that ends with the program.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use anyhow::Context;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use tokio::sync::oneshot;

/// What a program is to find.
pub(super) struct Room {
    /// Its root, with the program and its libraries.
    pub(super) root: PathBuf,
    /// The network namespace it is in.
    pub(super) network: OwnedFd,
    /// Files bound over those of its root that have these names.
    pub(super) files: Vec<(PathBuf, PathBuf)>,
}

/// A thread that stands in a room.
pub(super) struct Door {
    word: mpsc::Sender<Vec<String>>,
    started: oneshot::Receiver<io::Result<Child>>,
}

impl Room {
    /// Makes the room; nothing is started yet.
    pub(super) async fn furnish(self) -> anyhow::Result<Door> {
        let (word, listen) = mpsc::channel::<Vec<String>>();
        let (tell_ready, ready) = oneshot::channel();
        let (tell_started, started) = oneshot::channel();
        std::thread::Builder::new().name("floor".into()).spawn(move || {
            let nothing = match self.enter() {
                Ok(nothing) => nothing,
                Err(error) => return drop(tell_ready.send(Err(error))),
            };
            // Whoever waits may have given up meanwhile.
            if tell_ready.send(Ok(())).is_ok()
                && let Ok(arguments) = listen.recv()
            {
                drop(tell_started.send(start(&arguments, &nothing)));
            }
        })?;
        ready.await.context("the thread ended")??;
        Ok(Door { word, started })
    }

    /// Moves the calling thread, which must end afterwards. Gives what was opened outside: a file that is read as empty.
    fn enter(&self) -> io::Result<File> {
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        // SAFETY: only mounts, root and working directory are unshared; file descriptors stay shared with the other threads.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        for (file, place) in &self.files {
            mount_bind(file, place)?;
        }
        move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))?;
        rustix::process::chroot(&self.root)?;
        rustix::process::chdir("/")?;
        Ok(nothing)
    }
}

impl Door {
    /// Starts the program of the room.
    pub(super) async fn start(self, arguments: &[&str]) -> anyhow::Result<Child> {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        self.word.send(arguments).ok().context("the thread is gone")?;
        self.started.await.context("the thread ended")?.context("start the engine's program")
    }
}

fn start(arguments: &[String], nothing: &File) -> io::Result<Child> {
    let unheard = || io::Result::Ok(Stdio::from(nothing.try_clone()?));
    Command::new("/program")
        .args(arguments)
        .env_clear()
        .stdin(unheard()?)
        .stdout(unheard()?)
        .stderr(unheard()?)
        .process_group(0)
        .spawn()
}

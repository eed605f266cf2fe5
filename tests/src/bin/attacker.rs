//! Runs inside a guest as root, takes the guest program's end of the link and harms the link with it.
//!
//! Argument: what to do with it. Ends only when it is killed, or when there is nothing to take.

use std::fs;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

const PIECE_BYTES: usize = 64 * 1024;

fn main() -> ExitCode {
    match attack() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(1),
    }
}

/// A descriptor of process 1 that is open on the link's port.
fn take_port() -> Result<OwnedFd> {
    let agent = pidfd_open(Pid::INIT, PidfdFlags::empty())?;
    for entry in fs::read_dir("/proc/1/fd")? {
        let path = entry?.path();
        let target = fs::read_link(&path)?;
        if target.to_string_lossy().contains("vport") {
            let number = path.file_name().and_then(|name| name.to_str()).context("a number")?.parse()?;
            return Ok(pidfd_getfd(&agent, number, PidfdGetfdFlags::empty())?);
        }
    }
    bail!("process 1 holds no port")
}

fn attack() -> Result<()> {
    let how = std::env::args().nth(1).context("say how")?;
    let port = take_port()?;
    fs::write("/run/attacking", &how)?;
    let mut random = fs::File::open("/dev/urandom")?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match how.as_str() {
            "garbage" => random.read_exact(&mut piece)?,
            "zeros" => piece.fill(0),
            "giants" => piece.fill(0xff),
            "echo" | "steal" => {
                let count = rustix::io::read(&port, &mut piece).unwrap_or(0);
                if how == "steal" || count == 0 {
                    continue;
                }
                piece.truncate(count);
            }
            _ => bail!("no such attack"),
        }
        if rustix::io::write(&port, &piece).is_err() {
            // The port is full: the host does not read faster than this.
            std::thread::sleep(Duration::from_millis(1));
        }
        piece.resize(PIECE_BYTES, 0);
    }
}

//! Memory on demand for QEMU: a postcopy migration whose source is us.
//!
//! ```text
//! us                                                                QEMU, started with empty memory
//!  ├─ what QEMU had in its other blocks of memory ───────────────────► put back: postcopy begins with all memory empty
//!  ├─ package: "listen", a ping, the saved devices, "run" ───────────► makes its userfaultfd
//!  │◄─ pong ─────────────────────────────────────────────────────────┤
//!  ├─ takes the userfaultfd, serves page faults                      ├─ loads the devices, which touches memory
//!  │◄─ requests for pages whose faults QEMU has read itself ─────────┤
//!  └─ closes its half when the devices are loaded ───────────────────► stops reading faults: "postcopy paused"
//! ```
//!
//! From there on it is like any other machine whose memory comes on demand: pages are put in place by the page server, never by
//! QEMU, and a later node takes the descriptor over. As far as QEMU knows its migration waits to be continued, which keeps it from
//! nothing that is asked of it here.

mod blocks;
mod replies;
mod stream;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use memory::pages::{Handover, Regions};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;

use super::qmp::Qmp;
use crate::engine::ControlError;
use crate::on_demand::{Pages, not_taken};
use crate::process::VmProcess;
use blocks::Block;
use replies::{Replies, Reply};

/// What QEMU calls the machine's memory; [`super::command`] says so.
const MEMORY: &str = "ram";
/// The name under which QEMU is given its end of the stream.
const STREAM: &str = "memory";
/// Most bytes of saved devices. They have some 20 KB.
const DEVICES_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of a block besides the machine's memory. The largest is firmware of 64 KiB.
const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// How long QEMU may take to begin to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Loads devices into a QEMU whose memory comes on demand, and answers its page faults from then on. `loaded` completes when QEMU
/// has all of them.
pub(super) async fn load(
    control: &Qmp,
    process: &VmProcess,
    pages: &Pages,
    devices: File,
    loaded: impl Future<Output = Result<(), ControlError>>,
) -> Result<(), ControlError> {
    let origin = pages.take_origin()?;
    let length = origin.source.length();
    let answer = control.run("x-query-ramblock", json!({})).await?;
    let text = answer.get("human-readable-text").and_then(Value::as_str);
    let blocks = text.and_then(blocks::parse).ok_or(ControlError::Garbled { command: "x-query-ramblock" })?;
    let (memory, others): (Vec<Block>, Vec<Block>) =
        blocks.into_iter().partition(|block| block.name == MEMORY);
    let [memory] = &memory[..] else {
        return Err(not_taken(io::Error::other("the machine has no memory of its own")));
    };
    let regions = Regions::whole(memory.address, memory.length).map_err(not_taken)?;
    regions.check_length(length).map_err(not_taken)?;
    let pid = process.identity().pid;
    let stream = tokio::task::block_in_place(|| {
        let others = contents(pid, others)?;
        stream::begin(MEMORY, &others, &read_devices(devices)?)
    });
    let stream = stream.map_err(not_taken)?;

    let capabilities = json!([{ "capability": "postcopy-ram", "state": true }]);
    control.run("migrate-set-capabilities", json!({ "capabilities": capabilities })).await?;
    let (ours, theirs) = UnixStream::pair().map_err(not_taken)?;
    control.pass_named(STREAM, theirs.as_fd()).await?;
    drop(theirs);
    control.run("migrate-incoming", json!({ "uri": format!("fd:{STREAM}") })).await?;
    let (mut read, mut write) = ours.into_split();
    let mut replies = Replies::new(MEMORY, length);
    let listening = async {
        write.write_all(&stream).await.map_err(|_| ControlError::Ended)?;
        match replies.next(&mut read).await {
            Ok(Some(Reply::Pong)) => Ok(()),
            Ok(None) => Err(ControlError::Ended),
            Ok(Some(_)) => Err(ControlError::Garbled { command: "migrate-incoming" }),
            Err(error) => Err(not_taken(error)),
        }
    };
    tokio::time::timeout(LISTEN_TIMEOUT, listening).await.map_err(|_| ControlError::Unresponsive {
        command: "migrate-incoming",
        seconds: LISTEN_TIMEOUT.as_secs(),
    })??;
    let handover = Handover::take_over(pid, regions).map_err(not_taken)?;
    let server = pages.serve_beside(handover, origin, |asked| pass_on(replies, read, asked))?;
    tokio::select! {
        loaded = loaded => loaded?,
        error = server.failed() => return Err(ControlError::Memory(error)),
    }
    // QEMU sees the end of the stream, stops reading faults and closes its half.
    drop(write);
    Ok(())
}

/// Tells the page server what QEMU asks for, until it stops asking.
async fn pass_on(mut replies: Replies, mut read: OwnedReadHalf, asked: mpsc::Sender<u64>) {
    loop {
        match replies.next(&mut read).await {
            Ok(Some(Reply::Wants { offset })) => {
                if asked.send(offset).await.is_err() {
                    return;
                }
            }
            Ok(Some(Reply::Pong | Reply::Other)) => {}
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "a machine process asked for memory in a way that is not understood");
                return;
            }
        }
    }
}

/// What QEMU has in blocks of memory that are no part of a snapshot: firmware and tables that it makes itself, always the same.
fn contents(pid: u32, blocks: Vec<Block>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let process = File::open(format!("/proc/{pid}/mem"))?;
    let read = |block: Block| {
        if block.length > BLOCK_BYTES_MAX {
            return Err(io::Error::other("a block of memory is too long"));
        }
        let mut bytes = vec![0; block.length as usize];
        process.read_exact_at(&mut bytes, block.address)?;
        Ok((block.name, bytes))
    };
    blocks.into_iter().map(read).collect()
}

fn read_devices(devices: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    devices.take(DEVICES_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

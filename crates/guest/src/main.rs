//! The program that is PID 1 in every guest. As any other process it is a tool for whoever builds templates inside the guest, or
//! serves one descriptor, a stream or a socket that listens, for tests.

use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

use guest::agent::{Agent, Hangup, LinkEnd};
use guest::{boot, tool};

fn main() -> ExitCode {
    if std::process::id() == 1 {
        boot::run();
    }
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some(guest_link::tool::ARGUMENT) {
        return ExitCode::from(tool::run());
    }
    let descriptor =
        arguments.next().and_then(|number| number.parse::<i32>().ok()).filter(|number| *number >= 0);
    let (end, hangup): (fn(OwnedFd) -> LinkEnd, Hangup) = match first.as_deref() {
        Some("--serve-fd") => (LinkEnd::Stream, Hangup::Exit),
        Some("--serve-listener") => (LinkEnd::Listener, Hangup::Wait),
        _ => return usage(),
    };
    let Some(descriptor) = descriptor else { return usage() };
    // SAFETY: whoever started us passed this descriptor for us to own; nothing else in this program uses it.
    #[allow(unsafe_code, reason = "an inherited descriptor has no safe owner")]
    let link = unsafe { OwnedFd::from_raw_fd(descriptor) };
    match Agent::new(end(link), hangup).and_then(Agent::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "error: this program is PID 1 of a guest\nhint: `guest --serve-fd N` serves an inherited descriptor, `--serve-listener N` whoever connects to it"
    );
    ExitCode::from(2)
}

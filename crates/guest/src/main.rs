//! The program that is PID 1 in every guest. As any other process it is a tool for whoever builds templates inside the guest, or
//! serves one descriptor, for tests.

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
    let descriptor = match (first.as_deref(), arguments.next().map(|number| number.parse::<i32>())) {
        (Some("--serve-fd"), Some(Ok(descriptor))) if descriptor >= 0 => descriptor,
        _ => {
            eprintln!(
                "error: this program is PID 1 of a guest\nhint: `guest --serve-fd N` serves an inherited descriptor"
            );
            return ExitCode::from(2);
        }
    };
    // SAFETY: whoever started us passed this descriptor for us to own; nothing else in this program uses it.
    #[allow(unsafe_code, reason = "an inherited descriptor has no safe owner")]
    let link = unsafe { OwnedFd::from_raw_fd(descriptor) };
    match Agent::new(LinkEnd::Stream(link), Hangup::Exit).and_then(Agent::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

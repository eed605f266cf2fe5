//! Messages of both ends: whatever the bytes, none or a message, and a message that is written again reads the same.

#![no_main]

use std::fmt::Debug;

use fuzz::seeds;
use guest_link::GuestPath;
use guest_link::message::{
    Event, Failure, FileRequest, GuestControl, HostControl, Links, Quiesced, Request, Response, decode,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(payload: &[u8]) {
    if let Some(message) = decode::<T>(payload) {
        let again = postcard::to_stdvec(&message).expect("what was read can be written");
        assert_eq!(decode::<T>(&again).as_ref(), Some(&message));
    }
}

fn made<T: Serialize>(which: u8, message: &T) -> Vec<u8> {
    let mut seed = vec![which];
    seed.extend(postcard::to_stdvec(message).expect("a message can be written"));
    seed
}

fuzz_target!(
    init: seeds(|| {
        let path = GuestPath::parse("/etc/hostname").expect("a path");
        vec![
            made(0, &Request::File(FileRequest::Stat { path, links: Links::Follow })),
            made(1, &Event::Watching),
            made(1, &Event::Processes(Vec::new())),
            made(2, &Ok::<_, Failure>(Response::Transferred { bytes: 300 })),
            made(2, &Ok::<_, Failure>(Response::Link(b"target".to_vec()))),
            made(3, &HostControl::Quiesce { sync: true }),
            made(4, &GuestControl::Quiesced(Quiesced { streams: 1, processes: 2 })),
        ]
    }),
    |data: &[u8]| {
        let Some((which, payload)) = data.split_first() else { return };
        match which % 5 {
            0 => check::<Request>(payload),
            1 => check::<Event>(payload),
            2 => check::<Result<Response, Failure>>(payload),
            3 => check::<HostControl>(payload),
            _ => check::<GuestControl>(payload),
        }
    }
);

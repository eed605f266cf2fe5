//! Lines of QEMU's control socket.

#![no_main]

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: seeds(|| {
        vec![
            br#"{"QMP":{"version":{"qemu":{"micro":0,"minor":2,"major":8}},"capabilities":["oob"]}}"#.to_vec(),
            br#"{"return":{"status":"running"},"id":3}"#.to_vec(),
            br#"{"error":{"class":"GenericError","desc":"no"}}"#.to_vec(),
            br#"{"event":"STOP","timestamp":{"seconds":1,"microseconds":2}}"#.to_vec(),
        ]
    }),
    |data: &[u8]| {
        let _ = machine::fuzzing::qmp_line(data);
    }
);

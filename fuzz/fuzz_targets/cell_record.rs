//! What a context's kernel tells about a cell: results and errors, as JSON.

#![no_main]
#![allow(dead_code, unreachable_pub, reason = "a file of another crate, of which this target needs a part")]

#[path = "../../crates/interpreter/src/record.rs"]
mod record;

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;
use record::Record;

fuzz_target!(
    init: seeds(|| {
        vec![
            br#"{"display":{"main":true,"data":{"text/plain":"\u00e9"}}}"#.to_vec(),
            br#"{"error":{"name":"ValueError","value":"x","traceback":"y"}}"#.to_vec(),
        ]
    }),
    |data: &[u8]| {
        if let Some(Record::Display(bundle)) = Record::parse(data) {
            assert!(bundle.bytes() <= data.len());
        }
    }
);

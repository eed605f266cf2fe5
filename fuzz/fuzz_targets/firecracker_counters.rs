//! Lines of what Firecracker counts.

#![no_main]

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: seeds(|| {
        vec![
            br#"{"block_root":{"read_bytes":4096,"write_bytes":512,"read_count":2,"write_count":1}}"#.to_vec(),
            br#"{"net_net":{"rx_bytes_count":10,"tx_bytes_count":20,"tx_rate_limiter_throttled":1}}"#.to_vec(),
            br#"{"balloon":{"free_page_report_freed":2097152},"block":{"read_bytes":18446744073709551615}}"#.to_vec(),
        ]
    }),
    |data: &[u8]| {
        let _ = machine::fuzzing::firecracker_counters(data);
    }
);

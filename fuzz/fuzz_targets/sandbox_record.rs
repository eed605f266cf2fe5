//! `record.json` and `hibernation.json` of a sandbox, as they lie on a disk.

#![no_main]

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;
use node::SandboxRecord;

fuzz_target!(
    init: seeds(|| {
        let record = r#"{"format":1,"id":"abcdefghjk","generation":3,"phase":"running","template":"base","origin":"abcdefghjk",
            "shape":{"vcpus":1,"memory_mib":256},"memory":{"own":"memory.2"},"slot":4,"vm":null,"created_unix_ms":1,"died":null,
            "identity_seed":"00"}"#;
        let image = r#"{"memory":"memory.1","devices":"devices.1","fingerprint":{"engine":"qemu-tcg","version":"8.2","machine":"m","cpu":"c",
            "tsc_khz":1},"devices_digest":"0","stamps":{"memory.1":{"boot_id":"b","inode":1,"length":2,"modified_ns":3,"changed_ns":4}}}"#;
        assert!(serde_json::from_str::<SandboxRecord>(record).is_ok() && node::fuzzing::hibernation(image.as_bytes()));
        vec![record.into(), image.into()]
    }),
    |data: &[u8]| {
        if let Ok(record) = serde_json::from_slice::<SandboxRecord>(data) {
            let again = serde_json::to_vec(&record).expect("what was read can be written");
            assert_eq!(serde_json::from_slice::<SandboxRecord>(&again).ok(), Some(record));
        }
        let _ = node::fuzzing::hibernation(data);
    }
);

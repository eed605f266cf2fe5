//! What QEMU counts of a machine's disks. Its network cards it does not count.

use serde_json::Value;

use crate::counters::Counters;

/// The sums of an answer to `query-blockstats`; `None` when it is none.
pub(super) fn parse(answer: &Value) -> Option<Counters> {
    let disks = answer.as_array()?;
    let sum = |field: &str| {
        let numbers = disks.iter().filter_map(|disk| disk.get("stats")?.get(field)?.as_u64());
        numbers.fold(0, u64::saturating_add)
    };
    Some(Counters {
        disk_read_bytes: sum("rd_bytes"),
        disk_written_bytes: sum("wr_bytes"),
        disk_reads: sum("rd_operations"),
        disk_writes: sum("wr_operations"),
        ..Counters::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn disks_are_added_up() {
        let root = json!({ "rd_bytes": 4096, "wr_bytes": 512, "rd_operations": 2, "wr_operations": 1 });
        let volume = json!({ "rd_bytes": 1, "wr_bytes": u64::MAX, "rd_operations": -1 });
        let found =
            parse(&json!([{ "stats": root }, { "stats": volume }, { "qdev": "/machine" }, 7])).unwrap();
        assert_eq!((found.disk_read_bytes, found.disk_written_bytes), (4097, u64::MAX));
        assert_eq!((found.disk_reads, found.disk_writes), (2, 1));
        assert_eq!(found.network_sent_bytes, None);
        assert_eq!(parse(&json!([])), Some(Counters::default()));
        assert_eq!(parse(&json!({ "stats": {} })), None);
    }
}

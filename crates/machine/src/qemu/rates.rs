//! Rates of a machine's disks, set while it runs or waits. They are not part of what is saved.

use serde_json::{Value, json};

use super::qmp::Qmp;
use crate::engine::ControlError;
use crate::rates::Rates;

/// Gives every disk these rates, or frees it from all.
pub(super) async fn set(control: &Qmp, rates: Rates) -> Result<(), ControlError> {
    let disks = control.run("query-block", json!({})).await?;
    for request in requests(&disks, rates).ok_or(ControlError::Garbled { command: "query-block" })? {
        control.run("block_set_io_throttle", request).await?;
    }
    Ok(())
}

/// The requests, for an answer that tells of all disks.
fn requests(disks: &Value, rates: Rates) -> Option<Vec<Value>> {
    let number = |rate: Option<std::num::NonZeroU64>| rate.map_or(0, std::num::NonZeroU64::get);
    let request = |disk: &Value| {
        let path = disk.get("qdev")?.as_str()?;
        Some(json!({
            "id": path,
            "bps": number(rates.disk_bytes), "bps_rd": 0, "bps_wr": 0,
            "iops": number(rates.disk_operations), "iops_rd": 0, "iops_wr": 0,
        }))
    };
    disks.as_array()?.iter().map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_gets_its_rates_or_none() {
        let disks = json!([{ "qdev": "/machine/peripheral-anon/device[2]" }, { "qdev": "/machine/x" }]);
        let rates = Rates { disk_operations: std::num::NonZeroU64::new(50), ..Rates::default() };
        let found = requests(&disks, rates).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (&found[0]["id"], &found[0]["iops"], &found[0]["bps"]),
            (&disks[0]["qdev"], &json!(50), &json!(0))
        );
        assert_eq!(requests(&json!({}), rates), None);
        assert_eq!(requests(&json!([{}]), rates), None);
    }
}

//! Rates of a machine's devices, as requests to one that runs or is paused.
//!
//! Firecracker saves rates with the devices. What is saved here has none, because they are taken away while devices are saved, so a
//! machine need not be told anything where nothing is limited.

use std::num::NonZeroU64;

use serde_json::{Value, json};

use super::machine::{NETWORK_CARD, READABLE, ROOT, WRITABLE};
use crate::rates::Rates;

/// The time in which a bucket is filled again: a device that was idle may use as much at once as it may in this time.
const REFILL_MILLISECONDS: u64 = 1000;

/// The devices of a machine that rates are for.
#[derive(Debug, Clone)]
pub(super) struct RatedDevices {
    /// Disks that have something behind them.
    pub(super) drives: Vec<&'static str>,
    pub(super) has_network: bool,
}

impl RatedDevices {
    /// All that a machine may have.
    pub(super) fn all(has_network: bool) -> Self {
        let drives = std::iter::once(ROOT).chain(WRITABLE).chain(READABLE).collect();
        Self { drives, has_network }
    }

    /// The requests that give these devices their rates, or free them from all.
    pub(super) fn requests(&self, rates: Rates) -> Vec<(String, Value)> {
        let disk = json!({ "bandwidth": bucket(rates.disk_bytes), "ops": bucket(rates.disk_operations) });
        let mut requests: Vec<_> = self
            .drives
            .iter()
            .map(|name| (format!("/drives/{name}"), json!({ "drive_id": name, "rate_limiter": disk })))
            .collect();
        if self.has_network {
            let direction = json!({ "bandwidth": bucket(rates.network_bytes) });
            let card = json!({
                "iface_id": NETWORK_CARD,
                "rx_rate_limiter": direction,
                "tx_rate_limiter": direction,
            });
            requests.push((format!("/network-interfaces/{NETWORK_CARD}"), card));
        }
        requests
    }
}

/// A bucket without size is none.
fn bucket(rate: Option<NonZeroU64>) -> Value {
    match rate {
        Some(rate) => json!({ "size": rate, "refill_time": REFILL_MILLISECONDS }),
        None => json!({ "size": 0, "refill_time": 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_gets_its_rates_or_none() {
        let devices = RatedDevices { drives: vec![ROOT, "write0"], has_network: true };
        let rates = Rates { disk_bytes: NonZeroU64::new(4 << 20), ..Rates::default() };
        let requests = devices.requests(rates);
        let paths: Vec<_> = requests.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/drives/root", "/drives/write0", "/network-interfaces/net"]);
        let free = json!({ "size": 0, "refill_time": 0 });
        let limited = json!({ "size": 4 << 20, "refill_time": 1000 });
        assert_eq!(
            requests[1].1,
            json!({ "drive_id": "write0", "rate_limiter": { "bandwidth": limited, "ops": free } })
        );
        assert_eq!(requests[2].1["tx_rate_limiter"]["bandwidth"], free);
    }
}

//! What the devices of all machines have carried, as counters of Prometheus.

use node::Counters;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

/// Registers those that the node's engine counts.
pub(super) fn register(registry: &mut Registry, counters: Counters) {
    let all = [
        ("disk_read_bytes", "Read from disks of sandboxes", Some(counters.disk_read_bytes)),
        ("disk_written_bytes", "Written to disks of sandboxes", Some(counters.disk_written_bytes)),
        ("disk_reads", "Requests that read disks of sandboxes", Some(counters.disk_reads)),
        ("disk_writes", "Requests that wrote disks of sandboxes", Some(counters.disk_writes)),
        ("disk_throttled", "How often disks of sandboxes waited for their rate", counters.disk_throttled),
        ("network_received_bytes", "Received by sandboxes", counters.network_received_bytes),
        ("network_sent_bytes", "Sent by sandboxes", counters.network_sent_bytes),
        (
            "network_throttled",
            "How often network cards of sandboxes waited for their rate",
            counters.network_throttled,
        ),
        (
            "memory_given_back_bytes",
            "Memory that sandboxes freed and the host was given back",
            counters.given_back_bytes,
        ),
    ];
    for (name, help, count) in all {
        if let Some(count) = count {
            registry.register(name, help, ConstCounter::new(count));
        }
    }
}

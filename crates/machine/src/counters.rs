//! What a machine's devices have carried, whichever engine counts.

/// Checksums since the machine's process was started, or since this node took charge of it. What an engine does not count is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// What was read from its disks.
    pub disk_read_bytes: u64,
    /// What was written to its disks.
    pub disk_written_bytes: u64,
    /// Requests that read.
    pub disk_reads: u64,
    /// Requests that wrote.
    pub disk_writes: u64,
    /// How often a disk had to wait because of its rate.
    pub disk_throttled: Option<u64>,
    /// What its network card received.
    pub network_received_bytes: Option<u64>,
    /// What its network card sent.
    pub network_sent_bytes: Option<u64>,
    /// How often its network card had to wait because of its rate.
    pub network_throttled: Option<u64>,
    /// Memory that its guest freed and the host was given back. What is given back twice counts twice.
    pub given_back_bytes: Option<u64>,
}

impl Counters {
    /// Both together. Nothing overflows: numbers of a machine are not to be trusted.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What these have more than others.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    fn with(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        let optional = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(operation(one.unwrap_or(0), other.unwrap_or(0))),
        };
        Self {
            disk_read_bytes: operation(self.disk_read_bytes, other.disk_read_bytes),
            disk_written_bytes: operation(self.disk_written_bytes, other.disk_written_bytes),
            disk_reads: operation(self.disk_reads, other.disk_reads),
            disk_writes: operation(self.disk_writes, other.disk_writes),
            disk_throttled: optional(self.disk_throttled, other.disk_throttled),
            network_received_bytes: optional(self.network_received_bytes, other.network_received_bytes),
            network_sent_bytes: optional(self.network_sent_bytes, other.network_sent_bytes),
            network_throttled: optional(self.network_throttled, other.network_throttled),
            given_back_bytes: optional(self.given_back_bytes, other.given_back_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_stay_in_bounds() {
        let one = Counters { disk_read_bytes: 7, disk_throttled: Some(1), ..Counters::default() };
        let most = Counters { disk_read_bytes: u64::MAX, given_back_bytes: Some(5), ..Counters::default() };
        let sum = one.plus(most);
        assert_eq!(
            (sum.disk_read_bytes, sum.disk_throttled, sum.given_back_bytes),
            (u64::MAX, Some(1), Some(5))
        );
        assert_eq!((sum.network_sent_bytes, sum.disk_writes), (None, 0));
        assert_eq!(most.minus(one).disk_read_bytes, u64::MAX - 7);
        assert_eq!(one.minus(most).disk_read_bytes, 0);
        assert_eq!(one.minus(one).disk_throttled, Some(0));
    }
}

//! The pool of guest addresses and the arithmetic between slots and subnets. Pure.
//!
//! Slot `n` is the /30 that begins at the pool's base plus `4n`: `.1` is the host on `tap0`, `.2` the guest.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use serde::{Deserialize, Serialize};

/// Prefix length of the subnet each guest lives in.
const GUEST_PREFIX: u8 = 30;
/// Default gateway of every guest, on every `tap0`. It is the same for all, so that the route to it is part of a template: a guest that
/// becomes somebody has nothing to set but its own address.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The largest pool: seven decimal digits of slot are what an interface name has room for.
const POOL_PREFIX_MIN: u8 = 8;

/// Number of one /30 subnet in the pool, and so of one sandbox network on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(u32);

impl Slot {
    /// Any number names a slot; whether a pool has it is the pool's to say.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// `tap0` has the same address in every namespace, so a guest restored elsewhere keeps a right neighbour entry.
    pub(crate) const GATEWAY: Self = Self([0x06, 0x00, 0x00, 0x00, 0x00, 0x01]);

    /// A locally administered address that carries `ip`; `role` keeps those of one slot apart.
    fn of(role: u8, ip: Ipv4Addr) -> Self {
        let [a, b, c, d] = ip.octets();
        Self([0x06, role, a, b, c, d])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What a guest must use on its network card; anything else it sends is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestAddresses {
    /// The guest's own address.
    pub ip: Ipv4Addr,
    /// The host's address next to it.
    pub host: Ipv4Addr,
    /// Prefix length of the subnet both are in.
    pub prefix: u8,
    /// Hardware address of the guest's network card.
    pub mac: MacAddress,
    /// Hardware address of the gateway, the same for every guest.
    pub gateway_mac: MacAddress,
}

impl GuestAddresses {
    /// First address of the subnet.
    pub(crate) fn network(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ip.to_bits() & !3)
    }

    /// Hardware address of the host's end of the veth pair.
    pub(crate) fn host_veth_mac(&self) -> MacAddress {
        MacAddress::of(2, self.network())
    }

    /// Hardware address of the namespace's end of the veth pair.
    pub(crate) fn namespace_veth_mac(&self) -> MacAddress {
        MacAddress::of(3, self.network())
    }
}

/// The IPv4 range guests get their addresses from, cut into /30 subnets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressPool {
    base: u32,
    prefix: u8,
}

/// Why a text is not an address pool.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParsePoolError {
    /// Not of the form `10.201.0.0/16`.
    #[error("`{text}` is not an IPv4 range such as 10.201.0.0/16")]
    Malformed {
        /// What was given, shortened.
        text: String,
    },
    /// Too large or too small.
    #[error("a pool of prefix /{prefix} cannot be used: it must be /{POOL_PREFIX_MIN} to /{GUEST_PREFIX}")]
    PrefixOutOfRange {
        /// The prefix given.
        prefix: u8,
    },
    /// The base address has bits below the prefix.
    #[error("{base}/{prefix} does not begin at the start of a /{prefix}: write {start}/{prefix}")]
    Unaligned {
        /// The address given.
        base: Ipv4Addr,
        /// The prefix given.
        prefix: u8,
        /// Where the range that holds it begins.
        start: Ipv4Addr,
    },
    /// A range with a meaning of its own.
    #[error("{base}/{prefix} touches loopback, link-local, multicast or reserved addresses")]
    Reserved {
        /// The address given.
        base: Ipv4Addr,
        /// The prefix given.
        prefix: u8,
    },
}

/// Ranges no guest can be given, as (base, prefix).
const RESERVED: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

impl AddressPool {
    /// 16,384 subnets.
    pub const DEFAULT: Self = Self { base: Ipv4Addr::new(10, 201, 0, 0).to_bits(), prefix: 16 };

    /// A pool that begins at `base`.
    pub fn new(base: Ipv4Addr, prefix: u8) -> Result<Self, ParsePoolError> {
        if !(POOL_PREFIX_MIN..=GUEST_PREFIX).contains(&prefix) {
            return Err(ParsePoolError::PrefixOutOfRange { prefix });
        }
        let start = base.to_bits() & mask(prefix);
        if start != base.to_bits() {
            return Err(ParsePoolError::Unaligned { base, prefix, start: Ipv4Addr::from_bits(start) });
        }
        let overlaps = |(other, length): (Ipv4Addr, u8)| {
            let common = mask(length.min(prefix));
            start & common == other.to_bits() & common
        };
        if RESERVED.into_iter().any(overlaps) {
            return Err(ParsePoolError::Reserved { base, prefix });
        }
        Ok(Self { base: start, prefix })
    }

    /// How many guests the pool has room for.
    pub const fn capacity(&self) -> u32 {
        1 << (GUEST_PREFIX - self.prefix)
    }

    /// Whether `slot` is one of this pool's.
    pub const fn has(&self, slot: Slot) -> bool {
        slot.0 < self.capacity()
    }

    /// First address of the range.
    pub const fn base(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base)
    }

    /// Prefix length of the range.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether another range has an address of this one.
    pub(crate) const fn overlaps(&self, base: Ipv4Addr, prefix: u8) -> bool {
        let common = mask(if prefix < self.prefix { prefix } else { self.prefix });
        self.base & common == base.to_bits() & common
    }

    /// Whether `ip` lies in the pool.
    pub const fn contains(&self, ip: Ipv4Addr) -> bool {
        ip.to_bits() & mask(self.prefix) == self.base
    }

    /// The slot whose subnet holds `ip`.
    pub const fn slot_of(&self, ip: Ipv4Addr) -> Option<Slot> {
        if self.contains(ip) { Some(Slot((ip.to_bits() - self.base) / 4)) } else { None }
    }

    /// The addresses of `slot`, or `None` beyond the pool's end.
    pub fn addresses(&self, slot: Slot) -> Option<GuestAddresses> {
        if !self.has(slot) {
            return None;
        }
        let network = self.base + slot.0 * 4;
        let ip = Ipv4Addr::from_bits(network + 2);
        Some(GuestAddresses {
            ip,
            host: Ipv4Addr::from_bits(network + 1),
            prefix: GUEST_PREFIX,
            mac: MacAddress::of(0, ip),
            gateway_mac: MacAddress::GATEWAY,
        })
    }
}

const fn mask(prefix: u8) -> u32 {
    match prefix {
        0 => 0,
        _ => u32::MAX << (32 - prefix),
    }
}

impl Default for AddressPool {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for AddressPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.prefix)
    }
}

impl FromStr for AddressPool {
    type Err = ParsePoolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParsePoolError::Malformed { text: text.chars().take(32).collect() };
        let (base, prefix) = text.split_once('/').ok_or_else(malformed)?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        Self::new(base.parse().map_err(|_| malformed())?, prefix.parse().map_err(|_| malformed())?)
    }
}

impl TryFrom<String> for AddressPool {
    type Error = ParsePoolError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AddressPool> for String {
    fn from(pool: AddressPool) -> Self {
        pool.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn default_pool_has_16384_subnets() {
        let pool: AddressPool = "10.201.0.0/16".parse().unwrap();
        assert_eq!(pool, AddressPool::default());
        assert_eq!(pool.capacity(), 16_384);
        let first = pool.addresses(Slot::new(0)).unwrap();
        assert_eq!((first.host, first.ip), (Ipv4Addr::new(10, 201, 0, 1), Ipv4Addr::new(10, 201, 0, 2)));
        assert_eq!(first.mac.to_string(), "06:00:0a:c9:00:02");
        let last = pool.addresses(Slot::new(16_383)).unwrap();
        assert_eq!(last.ip, Ipv4Addr::new(10, 201, 255, 254));
        assert_eq!(pool.addresses(Slot::new(16_384)), None);
    }

    #[test]
    fn bad_pools_are_refused() {
        for bad in ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/+16", "10.0.0/16", "10.0.0.0/16 ", "10.0.0.0/999"]
        {
            assert!(matches!(bad.parse::<AddressPool>(), Err(ParsePoolError::Malformed { .. })), "{bad}");
        }
        for bad in ["10.0.0.0/31", "10.0.0.0/32", "0.0.0.0/0", "10.0.0.0/7"] {
            assert!(
                matches!(bad.parse::<AddressPool>(), Err(ParsePoolError::PrefixOutOfRange { .. })),
                "{bad}"
            );
        }
        for bad in ["127.0.0.0/8", "169.254.4.0/24", "224.0.0.0/8", "255.0.0.0/8", "0.0.0.0/8", "169.0.0.0/8"]
        {
            assert!(matches!(bad.parse::<AddressPool>(), Err(ParsePoolError::Reserved { .. })), "{bad}");
        }
        assert_eq!(
            "10.201.1.0/16".parse::<AddressPool>().unwrap_err().to_string(),
            "10.201.1.0/16 does not begin at the start of a /16: write 10.201.0.0/16"
        );
    }

    fn any_pool() -> impl Strategy<Value = AddressPool> {
        (any::<u32>(), 8u8..=30).prop_filter_map("reserved range", |(bits, prefix)| {
            AddressPool::new(Ipv4Addr::from_bits(bits & mask(prefix)), prefix).ok()
        })
    }

    proptest! {
        #[test]
        fn slots_and_subnets_map_both_ways(pool in any_pool(), pick: u32) {
            let slot = Slot::new(pick % pool.capacity());
            let addresses = pool.addresses(slot).unwrap();
            for ip in [addresses.network(), addresses.host, addresses.ip] {
                prop_assert!(pool.contains(ip));
                prop_assert_eq!(pool.slot_of(ip), Some(slot));
            }
            prop_assert_eq!(addresses.network().to_bits() % 4, 0);
            prop_assert!(pool.addresses(Slot::new(pool.capacity())).is_none());
            prop_assert_eq!(pool.to_string().parse::<AddressPool>(), Ok(pool));
        }

        #[test]
        fn different_slots_share_no_address(pool in any_pool(), a: u32, b: u32) {
            let (a, b) = (Slot::new(a % pool.capacity()), Slot::new(b % pool.capacity()));
            prop_assume!(a != b);
            let (a, b) = (pool.addresses(a).unwrap(), pool.addresses(b).unwrap());
            prop_assert!(a.ip != b.ip && a.host != b.host && a.mac != b.mac && a.ip != b.host);
        }

        #[test]
        fn an_address_outside_has_no_slot(pool in any_pool(), bits: u32) {
            let ip = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(pool.slot_of(ip).is_some(), pool.contains(ip));
            if let Some(slot) = pool.slot_of(ip) {
                prop_assert!(pool.has(slot));
            }
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC{0,40}") {
            if let Ok(pool) = text.parse::<AddressPool>() {
                prop_assert_eq!(pool.to_string().parse::<AddressPool>(), Ok(pool));
            }
        }

        #[test]
        fn near_misses_are_parsed_without_panic(text in "[0-9]{1,3}(\\.[0-9]{1,3}){2,4}/[0-9]{0,3}") {
            drop(text.parse::<AddressPool>());
        }
    }
}

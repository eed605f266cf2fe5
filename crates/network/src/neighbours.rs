//! What else on this host has addresses: other instances, interfaces and routes; and which ranges are free.
//!
//! Looks and decides; changes nothing, except for [`remove_remains`], which removes what is left of an instance that has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::Ipv4Addr,
    os::{linux::net::SocketAddrExt, unix::net},
    path::Path,
};

use crate::{
    address::{AddressPool, Slot},
    firewall::{self, FirewallError},
    namespace,
    netlink::{Netlink, NetlinkError},
    network::CLAIM_PREFIX,
    reserve,
    tag::InstanceTag,
    thread::{self, ThreadError},
    wire::{self, Site, WireError},
};

/// What one instance has on this host's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its tag.
    pub tag: InstanceTag,
    /// Its range, as its firewall table or its route says it.
    pub pool: Option<AddressPool>,
    /// Whether a process has its network open.
    pub is_open: bool,
    /// Whether it has a firewall table.
    pub has_table: bool,
    /// Whether a guest of it has an open network.
    pub has_guests: bool,
    /// Whether its table drops what goes to its range on every interface, as tables of earlier versions do: guests of others with
    /// the range are cut off.
    pub cuts_off_others: bool,
    /// Its network namespaces.
    pub namespaces: usize,
    slots: BTreeSet<Slot>,
}

impl Instance {
    fn new(tag: InstanceTag) -> Self {
        Self {
            is_open: is_open(&tag),
            tag,
            pool: None,
            has_table: false,
            has_guests: false,
            cuts_off_others: false,
            namespaces: 0,
            slots: BTreeSet::new(),
        }
    }

    /// Name of its firewall table.
    pub fn table(&self) -> String {
        self.tag.table()
    }
}

/// Why a range cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// Another instance has addresses of it.
    Instance {
        /// Its tag.
        tag: InstanceTag,
        /// Its range.
        pool: AddressPool,
    },
    /// An interface of the host has an address in it.
    Address {
        /// The interface.
        interface: String,
        /// The address.
        ip: Ipv4Addr,
    },
    /// The host has a route to a part of it.
    Route {
        /// Where it leads.
        destination: Ipv4Addr,
        /// Prefix length.
        prefix: u8,
        /// By which interface.
        interface: String,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance { tag, pool } => {
                write!(f, "instance {tag} (firewall table {}) has {pool}", tag.table())
            }
            Self::Address { interface, ip } => write!(f, "host interface `{interface}` has {ip}"),
            Self::Route { destination, prefix, interface } => {
                write!(f, "the host's route to {destination}/{prefix} goes by `{interface}`")
            }
        }
    }
}

/// Why the host could not be looked through.
#[derive(Debug, thiserror::Error)]
pub enum NeighboursError {
    /// The firewall could not be read.
    #[error("could not read the firewall")]
    Firewall(#[from] FirewallError),
    /// Interfaces, addresses or routes could not be listed.
    #[error("could not look at the host's interfaces and routes")]
    Netlink(#[from] NetlinkError),
    /// The namespaces could not be listed.
    #[error("could not list the network namespaces")]
    Namespaces(#[source] io::Error),
    /// The work could not be done.
    #[error("could not work on the host's network")]
    Thread(#[from] ThreadError),
    /// Something of an instance would not go.
    #[error("could not remove a network of instance {tag}")]
    Remove {
        /// The instance.
        tag: InstanceTag,
        /// Why not.
        #[source]
        source: WireError,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostRoute {
    destination: Ipv4Addr,
    prefix: u8,
    interface: String,
}

/// Everything on this host that has addresses.
#[derive(Debug, Clone, Default)]
pub struct Neighbours {
    instances: Vec<Instance>,
    addresses: Vec<(Ipv4Addr, String)>,
    /// Routes of the host itself, apart from the default route.
    routes: Vec<HostRoute>,
}

impl Neighbours {
    /// Looks through the host with the `nft` program of the usual place.
    pub async fn look() -> Result<Self, NeighboursError> {
        Self::look_with(Path::new(crate::network::NFT)).await
    }

    /// Looks through the host.
    pub async fn look_with(nft: &Path) -> Result<Self, NeighboursError> {
        let tables = firewall::tables(nft).await?;
        thread::run("net-neighbours".to_owned(), move || look(tables)).await?
    }

    /// Every instance that has something here, dead or alive.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// What keeps an instance from using a range. What is left of a dead one is in nobody's way, unless it cuts off others or a guest of
    /// it still runs with an open network.
    pub fn conflict(&self, own: Option<&InstanceTag>, pool: &AddressPool) -> Option<Conflict> {
        let others = self.instances.iter().filter(|instance| Some(&instance.tag) != own);
        let mut in_the_way =
            others.filter(|other| other.is_open || other.has_guests || other.cuts_off_others);
        let instance = in_the_way.find_map(|other| {
            let theirs = other.pool.filter(|theirs| pool.overlaps(theirs.base(), theirs.prefix()))?;
            Some(Conflict::Instance { tag: other.tag.clone(), pool: theirs })
        });
        let address = || {
            let (ip, interface) = self.addresses.iter().find(|(ip, _)| pool.contains(*ip))?;
            Some(Conflict::Address { interface: interface.clone(), ip: *ip })
        };
        // A wider route is what would be used if there were no guests; those of guests are longer and go before it.
        let route = || {
            let within = |route: &&HostRoute| {
                route.prefix >= pool.prefix() && pool.overlaps(route.destination, route.prefix)
            };
            let HostRoute { destination, prefix, interface } = self.routes.iter().find(within)?.clone();
            Some(Conflict::Route { destination, prefix, interface })
        };
        instance.or_else(address).or_else(route)
    }

    /// A range that nothing on this host uses: the wish, the usual one or another. One that no route of the host covers, if there is one.
    pub fn free_pool(&self, own: Option<&InstanceTag>, wish: AddressPool) -> Option<AddressPool> {
        let covered = |pool: &AddressPool| {
            self.routes.iter().any(|route| pool.overlaps(route.destination, route.prefix))
        };
        let free = || candidates(wish).filter(|pool| self.conflict(own, pool).is_none());
        // What remains of others does no harm, and is avoided all the same.
        let untouched = |pool: &AddressPool| {
            let mut others = self.instances.iter().filter(|instance| Some(&instance.tag) != own);
            !others
                .any(|other| other.pool.is_some_and(|theirs| pool.overlaps(theirs.base(), theirs.prefix())))
        };
        let best = free().find(|pool| !covered(pool) && untouched(pool));
        best.or_else(|| free().find(|pool| !covered(pool))).or_else(|| free().next())
    }
}

/// Ranges of private addresses in the order they are tried.
fn candidates(wish: AddressPool) -> impl Iterator<Item = AddressPool> {
    let tens = (201..=255).chain(64..201).map(|second| Ipv4Addr::new(10, second, 0, 0));
    let others = (16..=31).map(|second| Ipv4Addr::new(172, second, 0, 0));
    let ranges = tens.chain(others).filter_map(|base| AddressPool::new(base, 16).ok());
    std::iter::once(wish).chain(ranges)
}

/// Whether a process has the network of this tag open.
fn is_open(tag: &InstanceTag) -> bool {
    let address = net::SocketAddr::from_abstract_name(format!("{CLAIM_PREFIX}{tag}"));
    let bound = address.and_then(|address| net::UnixDatagram::bind_addr(&address));
    matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse)
}

/// The range that a table speaks of, and whether its rules meet the traffic of every interface.
fn read_table(text: &str) -> (Option<AddressPool>, bool) {
    let after = |line: &str, words: &str| {
        let rest = line.trim().strip_prefix(words)?;
        rest.split_whitespace().next()?.parse::<AddressPool>().ok()
    };
    let pool = text.lines().find_map(|line| after(line, "ip saddr != "));
    let chains =
        text.split("chain ").filter(|chain| chain.contains("hook forward") || chain.contains("hook output"));
    let cuts = chains.flat_map(str::lines).any(|line| after(line, "ip daddr ").is_some());
    (pool, cuts)
}

fn look(tables: Vec<(InstanceTag, String)>) -> Result<Neighbours, NeighboursError> {
    let mut host = Netlink::open()?;
    let (links, addresses, routes) = (host.links()?, host.addresses()?, host.routes()?);
    let names = match namespace::list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(NeighboursError::Namespaces)?,
    };
    let name_of = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
    let mut instances = BTreeMap::<String, Instance>::new();
    let mut known = |tag: InstanceTag, note: &mut dyn FnMut(&mut Instance)| {
        note(instances.entry(tag.to_string()).or_insert_with(|| Instance::new(tag)));
    };
    for (tag, text) in tables {
        let (pool, cuts) = read_table(&text);
        known(tag, &mut |instance| {
            (instance.has_table, instance.pool, instance.cuts_off_others) = (true, pool, cuts);
        });
    }
    for name in &names {
        if let Some(tag) = InstanceTag::of_namespace(name) {
            let slot = tag.slot_of_namespace(name);
            known(tag, &mut |instance| {
                instance.namespaces += 1;
                instance.slots.extend(slot);
            });
        }
    }
    for link in &links {
        if let Some(tag) = InstanceTag::of_veth(&link.name) {
            let slot = tag.slot_of_veth(&link.name);
            known(tag, &mut |instance| {
                instance.has_guests |= link.is_up;
                instance.slots.extend(slot);
            });
        }
    }
    let mut own_routes = Vec::new();
    for route in routes {
        match (route.index.and_then(name_of), InstanceTag::of_metric(route.metric)) {
            (None, Some(tag)) => known(tag, &mut |instance| {
                let pool = AddressPool::new(route.destination, route.prefix).ok();
                instance.pool = instance.pool.or(pool);
            }),
            // The route to an interface's own network says no more than its address.
            (Some(name), _) if InstanceTag::of_veth(&name).is_none() && route.prefix > 0 => {
                own_routes.push(HostRoute {
                    destination: route.destination,
                    prefix: route.prefix,
                    interface: name,
                });
            }
            _ => {}
        }
    }
    let addresses = addresses.into_iter().filter_map(|address| {
        let name = name_of(address.index)?;
        InstanceTag::of_veth(&name).is_none().then_some((address.ip, name))
    });
    Ok(Neighbours {
        addresses: addresses.collect(),
        instances: instances.into_values().collect(),
        routes: own_routes,
    })
}

/// What was removed of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Network namespaces with their veth pairs.
    pub networks: usize,
    /// Whether there was a firewall table.
    pub table: bool,
}

/// Removes everything an instance has on this host's network. Only for instances whose machines have ended and which nobody has
/// open. Safe to repeat.
pub async fn remove_remains(tag: &InstanceTag) -> Result<Removed, NeighboursError> {
    let nft = Path::new(crate::network::NFT);
    let found = Neighbours::look_with(nft).await?;
    let Some(instance) = found.instances.into_iter().find(|instance| instance.tag == *tag) else {
        return Ok(Removed::default());
    };
    // Removing goes by names, which need no range.
    let site = || Site { tag: tag.clone(), pool: AddressPool::DEFAULT };
    for &slot in &instance.slots {
        let site = site();
        let removed = thread::run(format!("net-remove-{slot}"), move || wire::remove(&site, slot)).await?;
        removed.map_err(|source| NeighboursError::Remove { tag: tag.clone(), source })?;
    }
    firewall::unload(nft, tag).await?;
    let own = tag.clone();
    thread::run("net-withdraw".to_owned(), move || reserve::withdraw(&mut Netlink::open()?, &own)).await??;
    Ok(Removed { networks: instance.slots.len(), table: instance.has_table })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> AddressPool {
        text.parse().unwrap()
    }

    fn instance(tag: &str, range: &str) -> Instance {
        let tag = InstanceTag::parse(tag).unwrap();
        Instance { pool: Some(pool(range)), is_open: true, ..Instance::new(tag) }
    }

    fn route(text: &str) -> HostRoute {
        let (base, prefix) = text.split_once('/').unwrap();
        HostRoute {
            destination: base.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
            interface: "eth0".to_owned(),
        }
    }

    #[test]
    fn a_range_in_use_is_told_with_its_user_and_another_is_found() {
        let neighbours = Neighbours {
            instances: vec![instance("aa11", "10.201.0.0/16"), instance("bb22", "10.202.4.0/24")],
            addresses: vec![(Ipv4Addr::new(10, 203, 0, 1), "br0".to_owned())],
            routes: vec![route("10.204.0.0/16"), route("172.16.0.0/12")],
        };
        let check = |range: &str, expected: Option<&str>| {
            let found = neighbours.conflict(None, &pool(range)).map(|conflict| conflict.to_string());
            assert_eq!(found.as_deref(), expected, "{range}");
        };
        check("10.201.0.0/24", Some("instance aa11 (firewall table pandastack_aa11) has 10.201.0.0/16"));
        check("10.202.0.0/16", Some("instance bb22 (firewall table pandastack_bb22) has 10.202.4.0/24"));
        check("10.203.0.0/16", Some("host interface `br0` has 10.203.0.1"));
        check("10.204.0.0/16", Some("the host's route to 10.204.0.0/16 goes by `eth0`"));
        check("172.16.0.0/16", None);
        check("10.205.0.0/16", None);
        let own = InstanceTag::parse("aa11").unwrap();
        assert_eq!(neighbours.conflict(Some(&own), &pool("10.201.0.0/16")), None);
        assert_eq!(neighbours.free_pool(Some(&own), AddressPool::DEFAULT), Some(AddressPool::DEFAULT));
        assert_eq!(neighbours.free_pool(None, AddressPool::DEFAULT), Some(pool("10.205.0.0/16")));
        assert_eq!(neighbours.free_pool(None, pool("192.168.7.0/24")), Some(pool("192.168.7.0/24")));
    }

    #[test]
    fn what_a_dead_instance_left_is_in_the_way_only_if_it_does_harm() {
        let dead = Instance { is_open: false, ..instance("aa11", "10.201.0.0/16") };
        let with = |instance: Instance| Neighbours { instances: vec![instance], ..Neighbours::default() };
        let conflict = |instance| with(instance).conflict(None, &AddressPool::DEFAULT).is_some();
        assert!(!conflict(dead.clone()));
        assert!(conflict(Instance { has_guests: true, ..dead.clone() }));
        assert!(conflict(Instance { cuts_off_others: true, ..dead.clone() }));
        // It is avoided where there is a choice.
        assert_eq!(with(dead).free_pool(None, AddressPool::DEFAULT), Some(pool("10.202.0.0/16")));
    }

    #[test]
    fn a_route_over_everything_still_leaves_a_range() {
        let neighbours =
            Neighbours { routes: vec![route("10.0.0.0/8"), route("172.16.0.0/12")], ..Neighbours::default() };
        assert_eq!(neighbours.free_pool(None, AddressPool::DEFAULT), Some(AddressPool::DEFAULT));
    }

    #[test]
    fn tables_are_read() {
        let old = "table inet pandastack_ab12 {\n\tchain forward {\n\t\ttype filter hook forward priority filter - 10; policy accept;\n\
            \t\tiifname \"pab12v*\" jump from_guest\n\t\tip daddr 10.201.0.0/16 drop\n\t}\n\n\tchain from_guest {\n\
            \t\tip saddr != 10.201.0.0/16 drop\n\t\tip daddr 10.201.0.0/16 drop\n\t}\n}\n";
        assert_eq!(read_table(old), (Some(AddressPool::DEFAULT), true));
        let new = old.replacen("\t\tip daddr 10.201.0.0/16 drop\n", "", 1);
        assert_eq!(read_table(&new), (Some(AddressPool::DEFAULT), false));
        assert_eq!(read_table("table inet pandastack_ab12 {\n}\n"), (None, false));
    }
}

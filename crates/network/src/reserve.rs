//! Keeps what is sent to unused addresses of the pool on this host.
//!
//! A guest with an open network has a route of its own. Without the one made here, what is sent to any other address of the pool
//! (to a guest that was just closed, or to one that never was) would leave by the host's default route. It is a route, not a
//! firewall rule, because rules would also meet the traffic of another instance that has the same range; routes to guests are
//! longer, so they go before it whosever they are.

use crate::{
    address::AddressPool,
    netlink::{Netlink, NetlinkError, Refusal},
    tag::InstanceTag,
};

/// Refuses the pool's unused addresses, and no longer those of a pool that this instance had before.
pub(crate) fn refuse(host: &mut Netlink, tag: &InstanceTag, pool: &AddressPool) -> Result<(), NetlinkError> {
    let range = (pool.base(), pool.prefix());
    host.refuse(Refusal::Add, range, tag.metric())?;
    withdraw_but(host, tag, Some(range))
}

/// Removes this instance's routes. Safe to repeat.
pub(crate) fn withdraw(host: &mut Netlink, tag: &InstanceTag) -> Result<(), NetlinkError> {
    withdraw_but(host, tag, None)
}

fn withdraw_but(
    host: &mut Netlink,
    tag: &InstanceTag,
    keep: Option<(std::net::Ipv4Addr, u8)>,
) -> Result<(), NetlinkError> {
    for route in host.routes()? {
        let range = (route.destination, route.prefix);
        if route.index.is_none() && route.metric == tag.metric() && Some(range) != keep {
            host.refuse(Refusal::Remove, range, route.metric)?;
        }
    }
    Ok(())
}

//! Which addresses guests of this instance get, when others on this host have some too.
//!
//! A range that the operator named is used or refused, before anything is made. Otherwise the one of the last start goes on, and where
//! another has it a free one is taken, unless machines run that have their addresses from it.

use network::{AddressPool, Conflict, Neighbours};

use crate::config::{AddressChoice, NodeConfig};
use crate::error::{AddressesInUse, OpenError};
use crate::instance::{self, Note};
use crate::machine_resources::Names;
use crate::sweep;

/// Decides. Makes nothing.
pub(crate) async fn choose(config: &NodeConfig) -> Result<AddressPool, OpenError> {
    let own = instance::known_tag(&config.data_dir);
    let last = instance::last_addresses(&config.data_dir);
    let wish = match config.address_choice {
        AddressChoice::Fixed => config.addresses,
        AddressChoice::Preferred => last.unwrap_or(config.addresses),
    };
    let neighbours = Neighbours::look().await?;
    let Some(conflict) = neighbours.conflict(own.as_ref(), &wish) else { return Ok(wish) };
    let free = neighbours.free_pool(own.as_ref(), config.addresses);
    let machines = match &own {
        Some(tag) => sweep::processes_named(&Names::new(tag.as_str()).prefix())
            .map_err(|source| OpenError::Host { action: "look for machines", source })?,
        None => Vec::new(),
    };
    match (config.address_choice, free) {
        (AddressChoice::Preferred, Some(free)) if machines.is_empty() => {
            tracing::info!("guests get addresses of {free}: {wish} is in use, {conflict}");
            Ok(free)
        }
        _ => Err(refusal(&neighbours, wish, conflict, free)),
    }
}

fn refusal(
    neighbours: &Neighbours,
    pool: AddressPool,
    conflict: Conflict,
    free: Option<AddressPool>,
) -> OpenError {
    let other = match &conflict {
        Conflict::Instance { tag, .. } => neighbours.instances().iter().find(|instance| instance.tag == *tag),
        _ => None,
    };
    let data_dir = other.and_then(|other| Note::of(&other.tag)).map(|note| note.data_dir);
    let is_over = other.is_some_and(|other| !other.is_open);
    OpenError::Addresses(Box::new(AddressesInUse { pool, conflict, data_dir, is_over, free }))
}

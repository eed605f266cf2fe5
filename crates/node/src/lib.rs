//! The host side: one driver per sandbox, bake, restore, fork, hibernate, re-attach, garbage collection.
//!
//! A [`Node`] owns a data directory. Templates are baked into snapshots ([`bake`]); every sandbox is restored from one
//! ([`restore`]) and from then on owned by a driver task ([`driver`]) that takes its requests one at a time. What a sandbox is
//! doing is written down before it is done ([`record`]), so that the next process can find out what was under way
//! ([`recovery`]). The engine, and nothing else, differs between hosts.

mod archive;
pub mod backup;
mod bake;
mod catalogue;
mod config;
mod create;
mod driver;
mod error;
mod fresh;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gc;
mod hibernation;
mod identity;
mod instance;
mod keyed_mutex;
mod machine_resources;
mod meter;
mod name_servers;
mod node;
mod paths;
mod range;
mod read_ahead;
mod record;
mod recovery;
mod request;
mod restore;
mod save;
mod scoped_machine;
mod snapshots;
mod stamp;
mod step;
mod sweep;
mod uninstall;
mod volumes;
mod waiting;
mod workshop;

pub use archive::ArchiveConfig;
pub use bake::{
    BakeProgress, BakeStage, BuiltTemplate, ProcessDefaults, ReadyCheck, StartCommand, variant_base,
    variant_name,
};
pub use config::{AddressChoice, NodeConfig, PrestartedVmms};
pub use driver::{Sandbox, SandboxState};
pub use error::{AddressesInUse, NodeError, OpenError};
pub use fresh::Fresh;
pub use instance::{Note, is_data_directory, known_tag};
pub use name_servers::NameServers;
pub use node::{Node, NodeStats};
pub use record::SandboxRecord;
pub use request::{Child, CreateFrom, CreateRequest, Forked};
pub use restore::RestoreTimings;
pub use save::SaveTimings;
pub use snapshots::{SnapshotInfo, SnapshotKind, SnapshotMetadata, SnapshotPlace};
pub use uninstall::{Files, Removal, UninstallError, uninstall};
pub use volumes::{
    AttachMode, VOLUME_MIB_MAX, VOLUME_MIB_MIN, VolumeAttachment, VolumeInfo, VolumeRead, Volumes,
};
pub use workshop::{CopyItem, CopySettings, Entries, Listed, Workshop, WorkshopCommand, WorkshopPlan};

pub use guest_link::tool::{CopyWhat, Mount as CommandMount};
pub use machine::{Counters, VOLUMES_MAX};

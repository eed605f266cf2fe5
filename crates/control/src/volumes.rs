//! Volumes: rows say whose they are and what they are called, the node keeps their bytes.

use contract::sandbox::VolumeRequest;
use contract::time::rfc3339;
use contract::volume::{CreateVolume, PatchVolume, Volume};
use domain::VolumeId;
use node::{AttachMode, NodeError, VolumeInfo};
use store::{ProvisionState, Scope, StoreError, VolumeAttachment, VolumeRow};

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::{ControlError, Kind};
use crate::mount::{check_order, mount_path};
use crate::names;

const SIZE_MIB_DEFAULT: i64 = 256;
const SIZE_MIB_MAX: i64 = 65_536;
/// Sandboxes that an error names.
const SANDBOXES_NAMED_MAX: usize = 10;

/// Volumes of a sandbox as its node takes them.
pub(crate) fn node_volumes(attached: &[VolumeAttachment]) -> Vec<node::VolumeAttachment> {
    let mode = |volume: &VolumeAttachment| match volume.read_only {
        true => AttachMode::ReadOnly,
        false => AttachMode::ReadWrite,
    };
    attached
        .iter()
        .map(|volume| node::VolumeAttachment {
            volume: volume.id.clone(),
            mode: mode(volume),
            mount: volume.mount.clone(),
        })
        .collect()
}

fn size(mib: i64) -> Result<u64, ControlError> {
    match mib {
        16..=SIZE_MIB_MAX => Ok(mib as u64),
        _ => Err(ControlError::invalid(format!("size_mb must be between 16 and {SIZE_MIB_MAX}"))),
    }
}

fn no_volume(name: &str) -> ControlError {
    ControlError::not_found(format!("there is no volume {}", names::shown(name)))
}

fn view(row: &VolumeRow, info: Option<&VolumeInfo>) -> Volume {
    let attached = info.map(|info| info.attached_to.iter().map(|(sandbox, _)| sandbox.to_string()).collect());
    Volume {
        name: row.name.clone(),
        size_mb: row.size_mib,
        size_bytes: row.size_mib << 20,
        used_bytes: info.map_or(0, |info| info.used_bytes),
        attached_to: attached.unwrap_or_default(),
        created_at: rfc3339(row.created_ms),
    }
}

impl Control {
    async fn volume_row(&self, caller: &Caller, name: &str) -> Result<VolumeRow, ControlError> {
        let found = self.store().volume(&caller.tenant, name).await?;
        found.filter(|row| row.standing == ProvisionState::Live).ok_or_else(|| no_volume(name))
    }

    /// Makes a volume.
    pub async fn create_volume(
        &self,
        caller: &Caller,
        request: CreateVolume,
    ) -> Result<Volume, ControlError> {
        caller.require(Scope::Write)?;
        let name = names::volume_name(&request.name)?;
        let size_mib = size(request.size_mb.unwrap_or(SIZE_MIB_DEFAULT))?;
        let quota = self.quota(&caller.tenant).await?;
        let row = VolumeRow {
            id: VolumeId::from_random(random().map_err(ControlError::internal)?),
            tenant: caller.tenant.clone(),
            name,
            standing: ProvisionState::Creating,
            size_mib,
            created_ms: now_ms(),
        };
        let control = self.clone();
        self.finish(async move {
            match control.store().add_volume(row.clone(), &quota).await {
                Err(StoreError::Exists { .. }) => {
                    return Err(ControlError::conflict(format!("volume {} exists already", row.name)));
                }
                other => other?,
            }
            match control.node().volumes().create(&row.id, &row.name, size_mib).await {
                Ok(info) => {
                    control.store().change_volume(&row.id, size_mib, ProvisionState::Live).await?;
                    Ok(view(&row, Some(&info)))
                }
                Err(error) => {
                    control.store().remove_volume(&row.id).await?;
                    Err(error.into())
                }
            }
        })
        .await
    }

    /// The caller's volumes, newest first.
    pub async fn list_volumes(&self, caller: &Caller) -> Result<Vec<Volume>, ControlError> {
        let rows = self.store().volumes(&caller.tenant).await?;
        let live = rows.iter().filter(|row| row.standing == ProvisionState::Live);
        Ok(live.map(|row| view(row, self.node().volumes().get(&row.id).ok().as_ref())).collect())
    }

    /// One volume.
    pub async fn volume(&self, caller: &Caller, name: &str) -> Result<Volume, ControlError> {
        let row = self.volume_row(caller, name).await?;
        Ok(view(&row, self.node().volumes().get(&row.id).ok().as_ref()))
    }

    /// Grows a volume. A guest that has it sees the new size, and so does a file system that the server mounted; growing any other is the
    /// guest's to do.
    pub async fn patch_volume(
        &self,
        caller: &Caller,
        name: &str,
        patch: PatchVolume,
    ) -> Result<Volume, ControlError> {
        caller.require(Scope::Write)?;
        let mut row = self.volume_row(caller, name).await?;
        let Some(asked) = patch.size_mb else { return self.volume(caller, name).await };
        let size_mib = size(asked)?;
        if size_mib < row.size_mib {
            return Err(ControlError::invalid("volumes only grow; size_mb is smaller than the volume is"));
        }
        let quota = self.quota(&caller.tenant).await?;
        let control = self.clone();
        self.finish(async move {
            // What is wanted is counted before it is done, and what came of it is written down whichever way it ended.
            if !control.store().grow_volume(&row.id, size_mib, &quota).await? {
                return Err(no_volume(&row.name));
            }
            let grown = control.node().volumes().grow(&row.id, size_mib).await;
            let info = control.node().volumes().get(&row.id)?;
            row.size_mib = info.size_bytes >> 20;
            control.store().change_volume(&row.id, row.size_mib, ProvisionState::Live).await?;
            grown?;
            Ok(view(&row, Some(&info)))
        })
        .await
    }

    /// Deletes a volume that no sandbox has.
    pub async fn delete_volume(&self, caller: &Caller, name: &str) -> Result<(), ControlError> {
        caller.require(Scope::Write)?;
        let row = self.volume_row(caller, name).await?;
        let control = self.clone();
        self.finish(async move {
            match control.node().volumes().delete(&row.id).await {
                Ok(()) | Err(NodeError::NoVolume(_)) => {}
                Err(error @ NodeError::VolumeInUse { .. }) => {
                    return Err(control.still_attached(&row).because(error));
                }
                Err(error) => return Err(error.into()),
            }
            control.store().remove_volume(&row.id).await?;
            Ok(())
        })
        .await
    }

    /// Why a volume cannot be deleted, and what to do about it.
    fn still_attached(&self, row: &VolumeRow) -> ControlError {
        let info = self.node().volumes().get(&row.id).ok();
        let sandboxes: Vec<_> = info
            .iter()
            .flat_map(|info| &info.attached_to)
            .take(SANDBOXES_NAMED_MAX)
            .map(|(sandbox, _)| sandbox.to_string())
            .collect();
        let (noun, them) =
            if sandboxes.len() == 1 { ("sandbox", "that sandbox") } else { ("sandboxes", "those sandboxes") };
        let message = format!("volume {} is attached to {noun} {}", row.name, sandboxes.join(", "));
        ControlError::conflict(message).hint(format!(
            "delete {them} first: a sandbox has its volumes until it is deleted, asleep or not"
        ))
    }

    /// Volumes that a caller wants attached.
    pub(crate) async fn attachments(
        &self,
        caller: &Caller,
        asked: &[VolumeRequest],
    ) -> Result<Vec<VolumeAttachment>, ControlError> {
        let mut attached: Vec<VolumeAttachment> = Vec::new();
        for request in asked {
            let row = self.volume_row(caller, &request.name).await?;
            if attached.iter().any(|volume| volume.id == row.id) {
                return Err(ControlError::invalid(format!("volume {} is named twice", row.name)));
            }
            let read_only = request.read_only.unwrap_or(false);
            let mount = request.mount.as_deref().filter(|mount| !mount.is_empty());
            let mount = mount.map(mount_path).transpose()?;
            attached.push(VolumeAttachment { id: row.id, name: row.name, read_only, mount });
        }
        check_order(attached.iter().filter_map(|volume| volume.mount.as_deref()))?;
        Ok(attached)
    }

    /// After a start: volumes that were being made are removed, sizes are set right, those whose bytes are gone are told.
    pub(crate) async fn recover_volumes(&self) -> Result<(), StoreError> {
        for row in self.store().all_volumes().await? {
            let info = self.node().volumes().get(&row.id).ok();
            match (row.standing, info.is_some()) {
                (ProvisionState::Live, true) => {
                    // Less when the server ended between counting a growth and doing it.
                    let size_mib = info.map_or(row.size_mib, |info| info.size_bytes >> 20);
                    if size_mib != row.size_mib {
                        self.store().change_volume(&row.id, size_mib, ProvisionState::Live).await?;
                    }
                }
                (ProvisionState::Live, false) => {
                    tracing::error!(volume.id = %row.id, "the bytes of a volume are gone")
                }
                (_, there) => {
                    if there && let Err(error) = self.node().volumes().delete(&row.id).await {
                        tracing::error!(%error, volume.id = %row.id, "a volume that nobody was told about could not be removed");
                        continue;
                    }
                    self.store().remove_volume(&row.id).await?;
                }
            }
        }
        Ok(())
    }
}

/// What the node says about volumes, for callers.
pub(crate) fn volume_error(error: &NodeError) -> Option<ControlError> {
    Some(match error {
        NodeError::VolumeInUse { by, .. } => {
            ControlError::conflict(format!("the volume is attached to sandbox {by}"))
                .hint("delete that sandbox first, or attach the volume read-only everywhere")
        }
        NodeError::HasVolumes(_) => ControlError::conflict(
            "the sandbox has a volume attached for writing and can be neither saved nor forked",
        )
        .hint("attach the volume read-only, or take the snapshot of a sandbox without it"),
        NodeError::VolumeChanged(_) => ControlError::conflict(
            "a volume that this snapshot's guest was reading was attached for writing since",
        ),
        NodeError::NotMounted { place, said, .. } => {
            ControlError::conflict(format!("the volume could not be mounted at {place}: {said}"))
        }
        NodeError::TooManyVolumes { max, .. } => {
            ControlError::invalid(format!("a sandbox has at most {max} volumes"))
        }
        NodeError::VolumeSize { min, max, .. } => {
            ControlError::invalid(format!("size_mb must be between {min} and {max}"))
        }
        NodeError::NoRoom { .. } => {
            ControlError::new(Kind::NoSpace, "the host has no room for a volume of this size")
                .hint("ask for a smaller one, delete volumes, or add disk space")
        }
        _ => return None,
    })
}

//! The machine as a whole, from the host's side.

use std::net::Ipv4Addr;

use super::{CallError, Link, LinkError};
use crate::GuestPath;
use crate::message::{Event, ListeningPort, Metrics, Request, Response, SystemRequest};

/// More ports than there are: each may be bound on two families.
const PORTS_MAX: usize = 2 * 65_536;

impl Link {
    /// Asks for an answer and nothing else.
    pub async fn ping(&self) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::Ping)).await
    }

    /// TCP ports that something in the guest listens on.
    pub async fn listening_ports(&self) -> Result<Vec<ListeningPort>, CallError> {
        let stream = self.stream(&Request::System(SystemRequest::Ports))?;
        let mut all = Vec::new();
        loop {
            match stream.event().await? {
                Ok(Event::Ports(batch)) => all.extend(batch),
                Err(Response::Done) => return Ok(all),
                _ => return Err(LinkError::Unexpected.into()),
            }
            if all.len() > PORTS_MAX {
                return Err(LinkError::Protocol("port list without end").into());
            }
        }
    }

    /// Load of the machine.
    pub async fn metrics(&self) -> Result<Metrics, CallError> {
        match self.call(&Request::System(SystemRequest::Metrics)).await? {
            Response::Metrics(metrics) => Ok(metrics),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Flushes the guest's file systems.
    pub async fn sync(&self) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::Sync)).await
    }

    /// Flushes file systems, drops clean caches and gives unused blocks back. For baking.
    pub async fn trim(&self) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::Trim)).await
    }

    /// Makes the guest find the volumes of its machine: `/dev/vdb`, `/dev/vdc` and on, one for each element, which says whether
    /// it is read-only.
    pub async fn find_volumes(&self, read_only: &[bool]) -> Result<(), CallError> {
        // Guests of older snapshots know the first of these only, and it is all that most machines need.
        let request = if read_only.contains(&true) {
            SystemRequest::FindVolumesInModes { read_only: read_only.to_vec() }
        } else {
            SystemRequest::FindVolumes { count: u8::try_from(read_only.len()).unwrap_or(u8::MAX) }
        };
        self.perform(&Request::System(request)).await
    }

    /// Makes the guest's root file system fill its disk, which has been told to be this large.
    pub async fn grow_root(&self, bytes: u64) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::GrowRoot { bytes })).await
    }

    /// Mounts a volume that was found, counted from 0, at a directory, which is made if it is missing.
    pub async fn mount_volume(&self, slot: u8, place: GuestPath, read_only: bool) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::MountVolume { slot, place, read_only })).await
    }

    /// Makes the file system on a volume fill its disk, which has been told to be this large, if it is mounted.
    pub async fn grow_volume(&self, slot: u8, bytes: u64) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::GrowVolume { slot, bytes })).await
    }

    /// Says whom to ask for names from now on, unless others than `before` were chosen in the guest.
    pub async fn set_resolver(&self, servers: Vec<Ipv4Addr>, before: Vec<Ipv4Addr>) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::SetResolver { servers, before })).await
    }

    /// Flushes the file systems on volumes and lets nobody write them any more: as if they were unmounted, whoever uses them. For
    /// a machine that is about to end.
    pub async fn seal_volumes(&self) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::SealVolumes)).await
    }

    /// Begins a clean shutdown: processes are asked to end, killed after the grace, file systems unmounted. The machine then
    /// stops and the link closes; wait for [`Link::closed`].
    pub async fn shutdown(&self, grace_ms: u32) -> Result<(), CallError> {
        self.perform(&Request::System(SystemRequest::Shutdown { grace_ms })).await
    }
}

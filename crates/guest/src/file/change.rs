//! Operations that change names and metadata.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, lchown};
use std::path::Path;

use guest_link::GuestPath;
use guest_link::message::{Failure, FileFailure, Links, Owner, Parents, RemoveScope, Response};

use super::{as_path, failure};
use crate::process::account;

/// Permission bits of directories nobody spoke about.
const DIRECTORY_MODE: u32 = 0o755;

pub(super) fn make_directory(
    path: &GuestPath,
    parents: Parents,
    mode: Option<u32>,
    owner: Option<Owner>,
) -> Result<Response, Failure> {
    let path = as_path(path);
    let owner = owner.as_ref().map(ids).transpose()?;
    if parents == Parents::Create
        && let Some(parent) = path.parent()
    {
        make_parents(parent, owner).map_err(|error| failure(&error))?;
    }
    let mode = mode.unwrap_or(DIRECTORY_MODE);
    make_one(path, mode, owner).map_err(|error| failure(&error))?;
    // The umask does not apply to what the caller asked for.
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777)).map_err(|error| failure(&error))?;
    Ok(Response::Done)
}

/// Makes a directory and those above it; existing ones are fine.
pub(crate) fn make_parents(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    // From the top: each missing level is made with its owner before the next.
    let mut levels: Vec<&Path> = path.ancestors().collect();
    levels.reverse();
    // The usual case costs one call.
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    for level in levels {
        match make_one(level, DIRECTORY_MODE, owner) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::metadata(level)?.is_dir() {
                    return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
                }
            }
            other => other?,
        }
    }
    Ok(())
}

fn make_one(path: &Path, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode & 0o7777).create(path)?;
    match owner {
        Some((uid, gid)) => lchown(path, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

pub(super) fn remove(path: &GuestPath, scope: RemoveScope) -> Result<Response, Failure> {
    let path = as_path(path);
    let result = fs::symlink_metadata(path).and_then(|metadata| {
        if !metadata.is_dir() {
            fs::remove_file(path)
        } else if scope == RemoveScope::Recursive {
            fs::remove_dir_all(path)
        } else {
            fs::remove_dir(path)
        }
    });
    result.map(|()| Response::Done).map_err(|error| failure(&error))
}

pub(super) fn rename(from: &GuestPath, to: &GuestPath, parents: Parents) -> Result<Response, Failure> {
    let (from, to) = (as_path(from), as_path(to));
    // A missing source must not leave new directories behind.
    fs::symlink_metadata(from).map_err(|error| failure(&error))?;
    if parents == Parents::Create
        && let Some(parent) = to.parent()
    {
        make_parents(parent, None).map_err(|error| failure(&error))?;
    }
    fs::rename(from, to).map(|()| Response::Done).map_err(|error| failure(&error))
}

pub(super) fn set_mode(path: &GuestPath, mode: u32) -> Result<Response, Failure> {
    let result = fs::set_permissions(as_path(path), Permissions::from_mode(mode & 0o7777));
    result.map(|()| Response::Done).map_err(|error| failure(&error))
}

pub(super) fn set_owner(path: &GuestPath, owner: &Owner, links: Links) -> Result<Response, Failure> {
    let (uid, gid) = ids(owner)?;
    let result = match links {
        Links::Follow => chown(as_path(path), Some(uid), Some(gid)),
        Links::Keep => lchown(as_path(path), Some(uid), Some(gid)),
    };
    result.map(|()| Response::Done).map_err(|error| failure(&error))
}

pub(super) fn read_link(path: &GuestPath) -> Result<Response, Failure> {
    let text = fs::read_link(as_path(path)).map_err(|error| failure(&error))?;
    Ok(Response::Link(text.as_os_str().as_bytes().to_vec()))
}

/// Ids of an owner the caller named.
pub(super) fn ids(owner: &Owner) -> Result<(u32, u32), Failure> {
    account::owner_ids(owner).ok_or(Failure::File(FileFailure::UnknownOwner))
}

//! Mounts for one command, made in mounts of its own and taken back afterwards.

use std::ffi::CStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::ptr;

use guest_link::tool::{CopyWhat, Mount, Place};

use super::copy::Copier;
use super::{Tried, Trouble, place};
use crate::boot::c_path;
use crate::file::as_path;
use crate::kernel::check;

/// Where files in memory are made before they are bound to their places.
const SCRATCH: &str = "/dev/pandastack-scratch";

/// Links that are followed to find where a mount point has to be.
const LINKS_MAX: usize = 16;

/// What was mounted, and what was made to mount it on.
#[derive(Default)]
pub(super) struct Mounts {
    mounted: Vec<PathBuf>,
    made: Vec<PathBuf>,
    files: usize,
}

/// What a mount point has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    Directory,
    File,
}

impl Mounts {
    /// Mounts everything. What was made is in `self` even after an error.
    pub(super) fn make(&mut self, mounts: &[Mount], resolver: Option<&str>) -> Result<(), Trouble> {
        let scratch = Path::new(SCRATCH);
        // It is in memory, like all of `/dev`, and may be there from an earlier command.
        let _ = DirBuilder::new().mode(0o700).create(scratch);
        mount(c"tmpfs", scratch, c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, c"mode=0700")
            .tried("mount", scratch)?;
        if let Some(text) = resolver {
            self.contents(text.as_bytes(), 0o644, Path::new("/etc/resolv.conf"))?;
        }
        for wanted in mounts {
            match wanted {
                Mount::Bind { from, to, writable: false } => self.bind_place(from, as_path(to))?,
                Mount::Bind { from, to, writable: true } => self.copy_place(from, as_path(to))?,
                Mount::Kept { from, to, writable, mode, uid, gid } => {
                    if !place::exists(from)? {
                        make_kept(from, *mode, (*uid, *gid))?;
                    }
                    match writable {
                        true => drop(self.bind_held(from, as_path(to))?),
                        false => self.bind_place(from, as_path(to))?,
                    }
                }
                Mount::Tmpfs { to, bytes, mode, uid, gid } => {
                    let size = bytes.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
                    self.tmpfs(as_path(to), &format!("mode={:o},uid={uid},gid={gid}{size}", mode & 0o7777))?;
                }
                Mount::Contents { contents, mode, to } => self.contents(contents, *mode, as_path(to))?,
            }
        }
        detach(scratch).tried("unmount", scratch)
    }

    /// Takes everything back.
    pub(super) fn take_back(&self) {
        for place in self.mounted.iter().rev() {
            // A mount that stays does so until this process ends, and only for it.
            let _ = detach(place);
        }
        for path in self.made.iter().rev() {
            // What a command has put something into is its own.
            match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_dir() => drop(fs::remove_dir(path)),
                Ok(metadata) if metadata.is_file() && metadata.len() == 0 => drop(fs::remove_file(path)),
                _ => {}
            }
        }
    }

    fn bind_held(&mut self, from: &Place, to: &Path) -> Result<PathBuf, Trouble> {
        let held = place::open(from)?;
        let from = held.path();
        let is_directory = fs::metadata(&from).tried("mount at", to)?.is_dir();
        let to = self.point(to, if is_directory { Point::Directory } else { Point::File })?;
        self.bind(&from, to.clone())?;
        Ok(to)
    }

    fn bind_place(&mut self, from: &Place, to: &Path) -> Result<(), Trouble> {
        let to = self.bind_held(from, to)?;
        let path = c_path(&to).tried("mount at", &to)?;
        let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
        // SAFETY: the path is a C string; a remount needs no more.
        check(unsafe { libc::mount(ptr::null(), path.as_ptr(), ptr::null(), flags, ptr::null()) })
            .tried("mount at", &to)?;
        Ok(())
    }

    fn copy_place(&mut self, from: &Place, to: &Path) -> Result<(), Trouble> {
        let held = place::open(from)?;
        let from = held.path();
        if fs::metadata(&from).tried("mount at", to)?.is_dir() {
            let to = self.tmpfs(to, "mode=0755")?;
            return Copier::new(None, None).copy(&from, &to, CopyWhat::Contents);
        }
        let copy = self.scratch_file();
        Copier::new(None, None).copy(&from, &copy, CopyWhat::Itself)?;
        let to = self.point(to, Point::File)?;
        self.bind(&copy, to)
    }

    fn tmpfs(&mut self, to: &Path, options: &str) -> Result<PathBuf, Trouble> {
        let to = self.point(to, Point::Directory)?;
        let options = c_path(Path::new(options)).tried("mount at", &to)?;
        mount(c"tmpfs", &to, c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &options).tried("mount at", &to)?;
        self.mounted.push(to.clone());
        Ok(to)
    }

    fn contents(&mut self, contents: &[u8], mode: u32, to: &Path) -> Result<(), Trouble> {
        let source = self.scratch_file();
        let open = OpenOptions::new().write(true).create_new(true).mode(mode & 0o7777).open(&source);
        open.and_then(|mut file| file.write_all(contents)).tried("make", to)?;
        let to = self.point(to, Point::File)?;
        self.bind(&source, to)
    }

    fn scratch_file(&mut self) -> PathBuf {
        self.files += 1;
        Path::new(SCRATCH).join(self.files.to_string())
    }

    fn bind(&mut self, from: &Path, to: PathBuf) -> Result<(), Trouble> {
        let (source, target) = (c_path(from).tried("mount at", &to)?, c_path(&to).tried("mount at", &to)?);
        // SAFETY: both paths are C strings; a bind mount needs no more.
        check(unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                ptr::null(),
                libc::MS_BIND | libc::MS_REC,
                ptr::null(),
            )
        })
        .tried("mount at", &to)?;
        self.mounted.push(to);
        Ok(())
    }

    /// Where to mount, made if it is missing: a link that leads nowhere is given what it leads to.
    fn point(&mut self, path: &Path, point: Point) -> Result<PathBuf, Trouble> {
        let mut place = path.to_owned();
        for _ in 0..LINKS_MAX {
            match (fs::metadata(&place), fs::read_link(&place)) {
                (Ok(there), _) => {
                    if there.is_dir() == (point == Point::Directory) {
                        return fs::canonicalize(&place).tried("mount at", path);
                    }
                    let needed = if there.is_dir() { "a file" } else { "a directory" };
                    return Err(Trouble(format!("{needed} cannot be mounted over {}", path.display())));
                }
                (Err(_), Ok(link)) => place = place.parent().unwrap_or(Path::new("/")).join(link),
                (Err(_), Err(_)) => {
                    self.make_point(&place, point).tried("make", path)?;
                    return Ok(place);
                }
            }
        }
        Err(Trouble(format!("{} is a link without end", path.display())))
    }

    fn make_point(&mut self, path: &Path, point: Point) -> io::Result<()> {
        let mut missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|level| fs::symlink_metadata(level).is_err()).collect();
        missing.reverse();
        for level in missing {
            DirBuilder::new().mode(0o755).create(level)?;
            self.made.push(level.to_owned());
        }
        match point {
            Point::Directory => DirBuilder::new().mode(0o755).create(path)?,
            Point::File => drop(OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?),
        }
        self.made.push(path.to_owned());
        Ok(())
    }
}

/// Makes a directory that is kept, at the top of its disk.
fn make_kept(place: &Place, mode: u32, (uid, gid): (u32, u32)) -> Result<(), Trouble> {
    let inside = as_path(&place.path);
    let path = as_path(&place.root).join(inside.strip_prefix("/").unwrap_or(inside));
    DirBuilder::new().mode(0o700).create(&path).tried("make", inside)?;
    chown(&path, Some(uid), Some(gid)).tried("give away", inside)?;
    fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777)).tried("set the mode of", inside)
}

/// Covers a directory, so that nobody sees into it.
pub(super) fn cover(path: &Path) -> io::Result<()> {
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(c"tmpfs", path, c"tmpfs", flags, c"mode=0700")
}

/// From now on mounts of this process are nobody else's.
pub(super) fn keep_to_ourselves() -> io::Result<()> {
    // SAFETY: the path is a C string; a change of how mounts spread needs no more.
    check(unsafe {
        libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null())
    })?;
    Ok(())
}

/// Mounts a file system.
pub(super) fn mount(
    source: &CStr,
    target: &Path,
    kind: &CStr,
    flags: libc::c_ulong,
    options: &CStr,
) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: all pointers are C strings that outlive the call.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    })?;
    Ok(())
}

/// Takes away what is mounted at a path, with all that is mounted below it; nothing there is fine.
pub(super) fn detach(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string.
    match check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(error),
        _ => Ok(()),
    }
}

//! Archives and images that tests make, and looking at what became of them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{Cursor, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use oci::tar::{Entry, Kind, Writer};
use oci::{Compression, Descriptor, Digest, ImageConfig, Layout, Policy, RunConfig, UnpackError, Unpacker};

/// An entry with its content.
pub(crate) type Made = (Entry, Vec<u8>);

pub(crate) fn file(path: &str, content: &str) -> Made {
    let mut entry = Entry::new(Kind::File, path.as_bytes(), 0o644);
    entry.size = content.len() as u64;
    (entry, content.as_bytes().to_vec())
}

pub(crate) fn folder(path: &str, mode: u32) -> Made {
    (Entry::new(Kind::Directory, path.as_bytes(), mode), Vec::new())
}

pub(crate) fn link(kind: Kind, path: &str, target: &str) -> Made {
    let mut entry = Entry::new(kind, path.as_bytes(), 0o777);
    entry.link = target.as_bytes().to_vec();
    (entry, Vec::new())
}

pub(crate) fn symlink(path: &str, target: &str) -> Made {
    link(Kind::Symlink, path, target)
}

pub(crate) fn hard_link(path: &str, target: &str) -> Made {
    link(Kind::HardLink, path, target)
}

pub(crate) fn archive(entries: &[Made]) -> Vec<u8> {
    let mut out = Vec::new();
    write_archive(entries, &mut out).unwrap();
    out
}

pub(crate) fn write_archive(entries: &[Made], out: &mut dyn Write) -> std::io::Result<()> {
    let mut writer = Writer::new(out);
    for (entry, content) in entries {
        match entry.kind {
            Kind::File => writer.add_file(entry, content.as_slice())?,
            _ => writer.add(entry)?,
        }
    }
    writer.finish().map(drop)
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Applies layers over each other into `root`.
pub(crate) fn unpack(root: &Path, layers: &[&[Made]]) -> Result<oci::Unpacked, UnpackError> {
    unpack_with(root, layers, Policy::default())
}

pub(crate) fn unpack_with(
    root: &Path,
    layers: &[&[Made]],
    policy: Policy,
) -> Result<oci::Unpacked, UnpackError> {
    let mut unpacker = Unpacker::new(root, policy)?;
    for (number, layer) in layers.iter().enumerate() {
        let bytes = archive(layer);
        unpacker.layer(&format!("layer {number}"), Cursor::new(bytes.clone()), &Digest::of(&bytes))?;
    }
    Ok(unpacker.unpacked())
}

/// What is below `root`: kind, mode, owner and content of every name.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    list(root, "", &mut found);
    found
}

fn list(root: &Path, below: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(root.join(below)).unwrap() {
        let name = entry.unwrap().file_name();
        let path = format!("{below}{}", name.to_string_lossy());
        let full = root.join(below).join(&name);
        let about = std::fs::symlink_metadata(&full).unwrap();
        let mode = about.permissions().mode() & 0o7777;
        let text = match about.file_type() {
            kind if kind.is_symlink() => format!("-> {}", std::fs::read_link(&full).unwrap().display()),
            kind if kind.is_dir() => format!("folder {mode:o} {}:{}", about.uid(), about.gid()),
            _ => {
                let content = String::from_utf8_lossy(&std::fs::read(&full).unwrap()).into_owned();
                format!("{content} {mode:o} {}:{} x{}", about.uid(), about.gid(), about.nlink())
            }
        };
        if about.is_dir() {
            list(root, &format!("{path}/"), found);
        }
        found.insert(path, text);
    }
}

/// The names below `root`.
pub(crate) fn names(root: &Path) -> Vec<String> {
    tree(root).into_keys().collect()
}

pub(crate) fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut value = Vec::with_capacity(1 << 16);
    rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(value)
}

/// A configuration for the machine that guests are.
pub(crate) fn config() -> ImageConfig {
    ImageConfig {
        architecture: "amd64".into(),
        os: "linux".into(),
        config: RunConfig {
            env: vec!["PATH=/bin".into()],
            cmd: vec!["/bin/sh".into()],
            ..RunConfig::default()
        },
        ..ImageConfig::default()
    }
}

/// Writes an image of two layers: the second changes and removes what the first brought.
pub(crate) fn image(layout: &Layout, name: &str) -> Descriptor {
    let lower =
        [folder("etc", 0o755), file("etc/old", "old"), file("etc/name", "first"), file("bin/sh", "#!")];
    let upper = [file("etc/name", "second"), file("etc/.wh.old", ""), hard_link("bin/ash", "bin/sh")];
    let layers: Vec<_> = [&lower[..], &upper[..]]
        .into_iter()
        .map(|layer| layout.write_layer(Compression::Gzip, |out| write_archive(layer, out)).unwrap())
        .collect();
    layout.write_image(name, config(), &layers).unwrap()
}

/// What that image unpacks to.
pub(crate) const IMAGE_NAMES: [&str; 5] = ["bin", "bin/ash", "bin/sh", "etc", "etc/name"];

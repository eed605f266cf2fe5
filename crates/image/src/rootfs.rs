//! The root file system of a guest: a Debian with the packages a template asks for, as an ext4 image.

mod bootstrap;
mod certificates;
mod customise;
mod exclude;
mod ext4;
mod registries;
mod sources;
mod spec;
mod tree;
mod tree_disk;
mod users;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::certificates::Authorities;
use self::ext4::Ext4;
pub use self::ext4::Journal;
pub use self::sources::{PackageSources, host_suite};
pub use self::spec::{
    DiskSize, ExactVersion, FileSpec, GuestPath, HostCertificates, NpmPackage, PackageName, PythonPackage,
    RootfsSpec, SpecError, SuiteName, UserName, UserSpec,
};
pub use self::tree_disk::{PrepareError, TreeDisk, grow_disk, prepare_guest_tree};
use crate::digest::{Digest, KeyBuilder};
use crate::error::ImageError;
use crate::manifest::Content;
use crate::progress::Reporter;
use crate::store::{Built, ImageStore, Kind, PackageCache, Reuse, Staging, Wanted};

const FILE: &str = "rootfs.ext4";
/// Changes when root file systems are put together in another way, so that old ones are made anew.
const BUILDER_VERSION: &str = "rootfs-1";

/// A root file system ready to be cloned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rootfs {
    /// The ext4 image, sparse.
    pub path: PathBuf,
    /// Digest of the image, holes left out.
    pub digest: Digest,
    /// How large the guest sees it, in bytes.
    pub size: u64,
    /// What is in it.
    pub manifest: RootfsManifest,
}

/// What is in a root file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootfsManifest {
    /// What was asked for.
    pub spec: RootfsSpec,
    /// Where the packages came from, in the syntax of `sources.list`.
    pub sources: Vec<String>,
    /// What was installed, by name.
    pub packages: Vec<InstalledPackage>,
}

/// A package in a root file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

pub(crate) async fn ensure(
    store: &ImageStore,
    spec: &RootfsSpec,
    reuse: Reuse,
    reporter: Reporter<'_>,
) -> Result<Rootfs, ImageError> {
    spec.check()?;
    let sources = sources::lines(&store.answers(), &spec.sources, &spec.suite).await?;
    let authorities = match spec.host_certificates {
        HostCertificates::Inject => store.authorities().await?,
        HostCertificates::Leave => Authorities::none(),
    };
    let key = key(spec, &sources, &authorities);
    let wanted = Wanted { kind: Kind::Rootfs, key: key.short(), reuse };
    let (entry, manifest) = store
        .find_or_build(wanted, reporter, async |staging: &Staging| {
            build(staging, spec, sources, authorities, &key, reporter).await
        })
        .await?;
    let record = manifest.file(FILE).cloned().ok_or_else(|| {
        let source = std::io::Error::other("the manifest names no image");
        ImageError::io("reading a finished root file system", source)
    })?;
    Ok(Rootfs {
        path: entry.join(FILE),
        digest: record.digest,
        size: record.length,
        manifest: manifest.details,
    })
}

/// Everything the result depends on, except the versions that the sources have at the moment: a finished image stays
/// what it is until a rebuild is asked for.
fn key(spec: &RootfsSpec, sources: &[String], authorities: &Authorities) -> Digest {
    let spec = serde_json::to_vec(spec).expect("a checked specification has only strings, numbers and lists");
    let mut key = KeyBuilder::new(BUILDER_VERSION).field(spec);
    for line in sources {
        key.add(line);
    }
    key.add("certificates");
    authorities.add_to(&mut key);
    key.finish()
}

async fn build(
    staging: &Staging,
    spec: &RootfsSpec,
    sources: Vec<String>,
    authorities: Authorities,
    key: &Digest,
    reporter: Reporter<'_>,
) -> Result<Built<RootfsManifest>, ImageError> {
    reporter.at(0.0, "preparing");
    let (excludes, packages) = (spec.clone(), staging.packages().clone());
    staging
        .blocking("preparing the root file system", move |folder| {
            prepare(folder, &excludes, &authorities, &packages)
                .map_err(|error| ImageError::io("preparing the root file system", error))
        })
        .await?;
    bootstrap::install(staging, spec, &sources, reporter).await?;

    reporter.at(0.85, "adjusting the system to its life as a guest");
    let (owned_spec, packages) = (spec.clone(), staging.packages().clone());
    let installed = staging
        .blocking("adjusting the root file system", move |folder| {
            let failed = |error| ImageError::io("adjusting the root file system", error);
            packages.harvest(&folder.join(PackageCache::IN_STAGING)).map_err(failed)?;
            let root = folder.join("root");
            registries::clean_up(&root).map_err(failed)?;
            customise::apply(&root, &owned_spec).map_err(failed)?;
            let status = fs::read_to_string(root.join("var/lib/dpkg/status")).map_err(failed)?;
            Ok(installed_packages(&status))
        })
        .await?;

    reporter.at(0.9, "writing the disk image");
    let disk = Ext4 {
        root: &staging.path().join("root"),
        file: &staging.path().join(FILE),
        size: spec.size,
        key,
        files_min: 0,
        journal: Journal::Kept,
        lock: staging.lock(),
    };
    disk.write().await?;
    staging
        .blocking("removing the unpacked system", |folder| {
            bootstrap::clean_up(folder)
                .and_then(|()| fs::remove_dir_all(folder.join("root")))
                .map_err(|error| ImageError::io("removing the unpacked system", error))
        })
        .await?;
    let details = RootfsManifest { spec: spec.clone(), sources, packages: installed };
    Ok(Built { files: vec![(FILE, Content::Sparse)], details })
}

/// What must be there before the first package is installed: packages downloaded earlier, certificates that the
/// package `ca-certificates` takes in when it is set up, and what dpkg shall leave out.
fn prepare(
    folder: &Path,
    spec: &RootfsSpec,
    authorities: &Authorities,
    packages: &PackageCache,
) -> std::io::Result<()> {
    let root = folder.join("root");
    let archives = folder.join(PackageCache::IN_STAGING);
    fs::create_dir_all(&archives)?;
    packages.seed(&archives)?;
    authorities.place(&root)?;
    registries::prepare(&root, spec)?;
    exclude::configure_dpkg(&root, &spec.excludes, &spec.includes)
}

/// Reads dpkg's own database.
fn installed_packages(status: &str) -> Vec<InstalledPackage> {
    let mut packages: Vec<_> = status
        .split("\n\n")
        .filter_map(|paragraph| {
            let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name));
            let installed = field("Status: ")?.ends_with(" installed");
            let (name, version) = (field("Package: ")?.to_owned(), field("Version: ")?.to_owned());
            installed.then_some(InstalledPackage { name, version })
        })
        .collect();
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpkg_status_is_read() {
        let status = "Package: zlib1g\nStatus: install ok installed\nVersion: 1:1.2\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                      Package: adduser\nStatus: install ok installed\nVersion: 3.134\nDescription: a\n b\n";
        let packages = installed_packages(status);
        let listed: Vec<_> = packages.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
        assert_eq!(listed, [("adduser", "3.134"), ("zlib1g", "1:1.2")]);
    }

    #[test]
    fn the_key_depends_on_every_input() {
        let spec = crate::template::minimal().rootfs;
        let sources = ["deb http://a b main".to_owned()];
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.crt"), "x").unwrap();
        let (none, one) = (Authorities::none(), Authorities::read(folder.path()).unwrap());
        let base = key(&spec, &sources, &none);
        assert_eq!(base, key(&spec.clone(), &sources, &none));
        assert_ne!(base, key(&spec, &[], &none));
        assert_ne!(base, key(&spec, &sources, &one));
        let mut larger = spec.clone();
        larger.packages.push(PackageName::parse("less").unwrap());
        assert_ne!(base, key(&larger, &sources, &none));
    }
}

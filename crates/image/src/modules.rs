//! Which kernel modules a guest needs to reach its disk and its host, and in which order they load.
//!
//! Packages ship no `modules.dep` (it is made when they are installed), so dependencies come from the `.modinfo`
//! section of each module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::decompress::{Compression, DecompressError, decompress};
use crate::elf::{Elf, ElfError};

/// The largest module that is unpacked. The largest of Debian's cloud kernel has 3 MB.
const MODULE_LENGTH_MAX: usize = 64 << 20;
/// How many modules a kernel may have. Debian's largest kernel has about 4,000.
const MODULES_MAX: usize = 20_000;
/// How deep a module tree may be nested.
const DEPTH_MAX: usize = 16;

/// Without these a guest finds neither its disk, nor its network, nor its host.
const REQUIRED: [&str; 5] = ["virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "ext4"];

/// Loaded too where the kernel has them: entropy, raw sockets, closing stale connections after a restore, file
/// systems that users mount, and what only Firecracker offers: its link, and a balloon to give memory back by.
const OPTIONAL: [&str; 8] = [
    "virtio_rng",
    "af_packet",
    "inet_diag",
    "tcp_diag",
    "overlay",
    "fuse",
    "vmw_vsock_virtio_transport",
    "virtio_balloon",
];

/// Why the modules of a kernel could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The kernel has neither built in nor as a module what every guest needs.
    #[error("the kernel has no `{module}`, which every guest needs")]
    Missing {
        /// The module's name.
        module: String,
    },
    /// A module needs one that is not there.
    #[error("module `{module}` needs `{dependency}`, which the kernel does not have")]
    MissingDependency {
        /// The module that needs it.
        module: String,
        /// What it needs.
        dependency: String,
    },
    /// Two modules need each other.
    #[error("module `{module}` depends on itself")]
    Cycle {
        /// One of them.
        module: String,
    },
    /// The folder holds more than a kernel could have.
    #[error("more than {MODULES_MAX} modules or folders nested deeper than {DEPTH_MAX}")]
    TooMany,
    /// A module file is not one.
    #[error("module `{module}` is not an ELF file for this platform")]
    Elf {
        /// The module's name.
        module: String,
        /// What is wrong with it.
        #[source]
        source: ElfError,
    },
    /// A compressed module could not be unpacked.
    #[error("module `{module}` cannot be unpacked")]
    Decompress {
        /// The module's name.
        module: String,
        /// What is wrong with it.
        #[source]
        source: DecompressError,
    },
    /// The module folder could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A module ready to be put in an initramfs.
#[derive(Debug)]
pub(crate) struct Module {
    /// With underscores, as the kernel calls it.
    pub(crate) name: String,
    /// The uncompressed ELF file.
    pub(crate) content: Vec<u8>,
}

/// The modules a guest loads at boot, dependencies first. `modules_dir` is `lib/modules/<release>` of the kernel.
pub(crate) fn boot_modules(modules_dir: &Path) -> Result<Vec<Module>, ModuleError> {
    let mut resolver = Resolver {
        files: find_files(modules_dir)?,
        builtin: read_builtin(modules_dir)?,
        loading: BTreeSet::new(),
        done: BTreeSet::new(),
        order: Vec::new(),
    };
    for name in REQUIRED {
        if !resolver.knows(name) {
            return Err(ModuleError::Missing { module: name.to_owned() });
        }
        resolver.add(name)?;
    }
    for name in OPTIONAL {
        if resolver.knows(name) {
            resolver.add(name)?;
        }
    }
    Ok(resolver.order)
}

struct Resolver {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
    loading: BTreeSet<String>,
    done: BTreeSet<String>,
    order: Vec<Module>,
}

impl Resolver {
    fn knows(&self, name: &str) -> bool {
        self.builtin.contains(name) || self.files.contains_key(name)
    }

    /// Recursion is bounded: a module in `loading` is a cycle, and there are at most `MODULES_MAX` of them; real
    /// chains are a handful deep.
    fn add(&mut self, name: &str) -> Result<(), ModuleError> {
        if self.builtin.contains(name) || self.done.contains(name) {
            return Ok(());
        }
        if !self.loading.insert(name.to_owned()) || self.loading.len() > 100 {
            return Err(ModuleError::Cycle { module: name.to_owned() });
        }
        let module = read_module(name, &self.files[name])?;
        for dependency in dependencies(&module)? {
            if !self.knows(&dependency) {
                return Err(ModuleError::MissingDependency { module: name.to_owned(), dependency });
            }
            self.add(&dependency)?;
        }
        self.loading.remove(name);
        self.done.insert(name.to_owned());
        self.order.push(module);
        Ok(())
    }
}

fn read_module(name: &str, path: &Path) -> Result<Module, ModuleError> {
    let content = fs::read(path).map_err(|source| ModuleError::Read { path: path.to_owned(), source })?;
    let content = match Compression::detect(&content) {
        None => content,
        Some(_) => decompress(&content, MODULE_LENGTH_MAX)
            .map_err(|source| ModuleError::Decompress { module: name.to_owned(), source })?,
    };
    Ok(Module { name: name.to_owned(), content })
}

/// What the module says it depends on.
fn dependencies(module: &Module) -> Result<Vec<String>, ModuleError> {
    let read = || Elf::parse(&module.content)?.section(".modinfo");
    let section = read().map_err(|source| ModuleError::Elf { module: module.name.clone(), source })?;
    Ok(modinfo_depends(section.unwrap_or_default()))
}

/// `.modinfo` is a list of NUL-terminated `key=value`.
fn modinfo_depends(section: &[u8]) -> Vec<String> {
    section
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(b"depends="))
        .flat_map(|value| value.split(|byte| *byte == b','))
        .filter(|name| !name.is_empty())
        .map(|name| kernel_name(&String::from_utf8_lossy(name)))
        .collect()
}

/// File names use dashes and underscores as they please; the kernel knows underscores only.
fn kernel_name(name: &str) -> String {
    name.replace('-', "_")
}

/// `virtio-rng.ko.xz` → `virtio_rng`.
fn module_name(file_name: &str) -> Option<String> {
    [".ko", ".ko.xz", ".ko.zst", ".ko.gz"]
        .iter()
        .find_map(|suffix| file_name.strip_suffix(suffix))
        .filter(|name| !name.is_empty())
        .map(kernel_name)
}

fn find_files(modules_dir: &Path) -> Result<BTreeMap<String, PathBuf>, ModuleError> {
    let mut found = BTreeMap::new();
    let mut open = vec![(modules_dir.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let unreadable = |source| ModuleError::Read { path: folder.clone(), source };
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            // Links (`build`, `source`) lead out of the tree and are not followed.
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() {
                open.push((entry.path(), depth + 1));
            } else if kind.is_file()
                && let Some(name) = entry.file_name().to_str().and_then(module_name)
            {
                found.insert(name, entry.path());
            }
            if found.len() > MODULES_MAX || open.len() > MODULES_MAX || depth > DEPTH_MAX {
                return Err(ModuleError::TooMany);
            }
        }
    }
    Ok(found)
}

/// Names of what is compiled into the kernel. A kernel without this list has nothing built in that we know of.
fn read_builtin(modules_dir: &Path) -> Result<BTreeSet<String>, ModuleError> {
    let path = modules_dir.join("modules.builtin");
    match fs::read_to_string(&path) {
        Ok(text) => {
            Ok(text.lines().filter_map(|line| line.rsplit('/').next()).filter_map(module_name).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(source) => Err(ModuleError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A module file with nothing but a `.modinfo` section.
    fn module_file(modinfo: &[u8]) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&62u16.to_le_bytes());
        let modinfo_offset = file.len() as u64;
        file.extend(modinfo);
        let names_offset = file.len() as u64;
        file.extend(names);
        let table_offset = file.len() as u64;
        let sections = [
            (0u32, 0u64, 0u64),
            (1, modinfo_offset, modinfo.len() as u64),
            (10, names_offset, names.len() as u64),
        ];
        for (name, offset, length) in sections {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&1u32.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&length.to_le_bytes());
            file.extend(header);
        }
        file[40..48].copy_from_slice(&table_offset.to_le_bytes());
        file[60..62].copy_from_slice(&3u16.to_le_bytes());
        file[62..64].copy_from_slice(&2u16.to_le_bytes());
        file
    }

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(builtin: &str) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(tree.0.path().join("kernel/drivers")).unwrap();
            fs::write(tree.0.path().join("modules.builtin"), builtin).unwrap();
            tree
        }

        fn module(self, file: &str, depends: &str) -> Self {
            let modinfo = format!("license=GPL\0depends={depends}\0name=x\0");
            fs::write(self.0.path().join("kernel/drivers").join(file), module_file(modinfo.as_bytes()))
                .unwrap();
            self
        }

        fn required(self) -> Self {
            self.module("virtio_mmio.ko", "virtio,virtio_ring")
                .module("virtio_ring.ko", "virtio")
                .module("virtio.ko", "")
                .module("virtio_blk.ko", "virtio-ring")
                .module("virtio_net.ko", "net_failover")
                .module("net_failover.ko", "")
                .module("virtio_console.ko", "virtio")
        }

        fn resolve(&self) -> Result<Vec<String>, ModuleError> {
            Ok(boot_modules(self.0.path())?.into_iter().map(|module| module.name).collect())
        }
    }

    const EXT4: &str = "kernel/fs/ext4/ext4.ko\n";

    #[test]
    fn dependencies_come_first_and_once() {
        let order = Tree::new(EXT4).required().module("virtio-rng.ko", "").resolve().unwrap();
        let expected = [
            "virtio",
            "virtio_ring",
            "virtio_mmio",
            "virtio_blk",
            "net_failover",
            "virtio_net",
            "virtio_console",
            "virtio_rng",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Tree::new("").required().resolve().unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no `ext4`, which every guest needs");
        let error = Tree::new(EXT4).required().module("overlay.ko", "exportfs").resolve().unwrap_err();
        assert_eq!(error.to_string(), "module `overlay` needs `exportfs`, which the kernel does not have");
        let tree = Tree::new(EXT4).required().module("fuse.ko", "overlay").module("overlay.ko", "fuse");
        assert!(matches!(tree.resolve(), Err(ModuleError::Cycle { .. })));
    }

    #[test]
    fn a_file_that_is_no_module_is_refused() {
        let tree = Tree::new(EXT4).required();
        fs::write(tree.0.path().join("kernel/drivers/fuse.ko"), "text").unwrap();
        assert!(matches!(tree.resolve(), Err(ModuleError::Elf { module, .. }) if module == "fuse"));
        fs::write(tree.0.path().join("kernel/drivers/fuse.ko"), b"\xfd7zXZ\0damaged").unwrap();
        assert!(matches!(tree.resolve(), Err(ModuleError::Decompress { module, .. }) if module == "fuse"));
    }

    proptest! {
        #[test]
        fn mutated_modules_never_panic(changes in proptest::collection::vec((0usize..300, any::<u8>()), 1..10)) {
            let mut content = module_file(b"depends=a,b\0");
            for (offset, value) in changes {
                if let Some(byte) = content.get_mut(offset) {
                    *byte = value;
                }
            }
            let _ = dependencies(&Module { name: "x".to_owned(), content });
        }
    }
}

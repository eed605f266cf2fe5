//! What a guest is made of: kernel, initramfs and root file system.
//!
//! [`ImageStore`] makes each of them once, keeps them by the digest of what they were made from, and gives them out
//! again. An image is complete or absent; builders may be killed at any moment, and several processes may share a
//! store. This crate does not boot anything and knows nothing about snapshots.

mod answers;
mod apt;
mod bzimage;
mod cpio;
mod decompress;
mod digest;
mod elf;
mod error;
mod guest_binary;
mod initramfs;
mod kernel;
mod little_endian;
mod manifest;
mod modules;
mod progress;
mod rootfs;
mod store;
pub mod template;
mod tool;

pub use bzimage::KernelFileError;
pub use cpio::CpioError;
pub use decompress::{Compression, DecompressError};
pub use digest::Digest;
pub use elf::ElfError;
pub use error::ImageError;
pub use guest_binary::{guest_binary, guest_binary_digest};
pub use initramfs::Initramfs;
pub use kernel::{KernelImage, KernelSource, unpack_kernel};
pub use modules::ModuleError;
pub use progress::{Progress, Silent, Stage, Step};
pub use rootfs::{
    Authorities, DiskSize, ExactVersion, FileSpec, GuestPath, HostCertificates, InstalledPackage, Journal,
    NpmPackage, PackageName, PackageSources, PrepareError, PythonPackage, Rootfs, RootfsManifest, RootfsSpec,
    SpecError, SuiteName, TreeDisk, UserName, UserSpec, grow_disk, host_suite, prepare_guest_tree,
};
pub use store::{Damage, ImageStore, Reuse};
pub use template::TemplateSpec;
pub use tool::{Tool, ToolError};

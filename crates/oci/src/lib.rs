//! Container images: pulled by the distribution protocol, kept by content, unpacked safely, written.
//!
//! ```text
//! name ─► Reference ─► Client::pull ─┐
//! layout directory, archive, docker save ─► Layout::import_* ─┼─► Layout ─► Image::unpack ─► tree ─► write_tree ─► Layout::write_*
//! root file system tarball ───────────────────────────────────┴─► Unpacker::tarball ───────────┘
//! ```
//!
//! Everything that comes from outside is hostile until checked. No registry is named here: what short names mean, which registries may
//! be asked, and who asks is the caller's to say. Only `Client` is asynchronous; the rest blocks and belongs on a thread that may.
//! Unpacking needs root, because files get owners.

mod config;
mod digest;
mod image;
mod import;
mod layout;
mod manifest;
pub mod media_type;
mod pack;
mod reference;
mod registry;
mod stream;
pub mod tar;
mod unpack;
mod write;

pub use config::{ConfigError, Healthcheck, History, ImageConfig, RootFs, RunConfig};
pub use digest::{Digest, DigestError};
pub use image::{Image, ImageError};
pub use import::{ImportError, ImportLimits, Wanted};
pub use layout::{InUse, Layout, LayoutError, NAME_ANNOTATION};
pub use manifest::{Descriptor, Document, Index, Manifest, ManifestError, Platform};
pub use pack::{Times, write_tree};
pub use reference::{Allowed, Naming, Reference, ReferenceError, RegistryHost, RegistryPattern, ShortNames};
pub use registry::{
    Client, Credentials, CredentialsError, Login, PlainHttp, Progress, PullError, PullLimit, PullSettings,
    Pulled, TlsError,
};
pub use stream::StreamLimit;
pub use unpack::{
    AbsoluteNames, Limits, Policy, SpecialFiles, UnpackCause, UnpackError, Unpacked, Unpacker, is_archive,
};
pub use write::{Compression, Layer};

//! Names of images: `[registry/]repository[:tag][@digest]`, parsed into something that cannot be wrong.
//!
//! What a name without a registry means, and which registries may be asked at all, is the caller's to say (`Naming`): no host is
//! named here.

use std::fmt;

use crate::digest::Digest;

mod host;

pub(crate) use host::is_nearby;
pub use host::{RegistryHost, RegistryPattern};

/// Longest name of registry and repository together, as registries limit it.
const NAME_BYTES_MAX: usize = 255;
/// Longest tag.
const TAG_BYTES_MAX: usize = 128;
/// The tag that is meant when a name has neither tag nor digest.
const TAG_DEFAULT: &str = "latest";

/// Why a text is no name of an image, or not one that may be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It does not have the form of a name.
    #[error("`{text}` is not the name of an image: {reason}")]
    Malformed {
        /// The first part of what was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No registry in it, and none is configured for such names.
    #[error("`{text}` names no registry, and none is configured for short names")]
    NoRegistry {
        /// What was given.
        text: String,
    },
    /// The registry is not one of those that may be used.
    #[error("images may not be taken from the registry `{registry}`")]
    NotAllowed {
        /// The registry in the name.
        registry: RegistryHost,
    },
}

/// How names are to be understood.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    /// What names without a registry mean; without it they are refused.
    pub short_names: Option<ShortNames>,
    /// Which registries may be named.
    pub allowed: Allowed,
}

/// What names without a registry mean.
#[derive(Debug, Clone)]
pub struct ShortNames {
    /// The registry they belong to.
    pub registry: RegistryHost,
    /// Put before repositories of that registry that have one part only, where it has such a custom.
    pub namespace: Option<String>,
}

/// Registries that may be used.
#[derive(Debug, Clone, Default)]
pub enum Allowed {
    /// Every one.
    #[default]
    All,
    /// Those that match one of these.
    Only(Vec<RegistryPattern>),
}

impl Allowed {
    /// Whether `registry` may be used.
    pub fn allows(&self, registry: &RegistryHost) -> bool {
        match self {
            Self::All => true,
            Self::Only(patterns) => patterns.iter().any(|pattern| pattern.matches(registry)),
        }
    }
}

/// The full name of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: RegistryHost,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Reads a name as people write it.
    ///
    /// # Errors
    /// When it is malformed, or names a registry that `naming` does not allow.
    pub fn parse(text: &str, naming: &Naming) -> Result<Self, ReferenceError> {
        let malformed = |reason| ReferenceError::Malformed { text: text.chars().take(300).collect(), reason };
        let (rest, digest) = match text.split_once('@') {
            None => (text, None),
            Some((rest, digest)) => {
                let digest =
                    Digest::parse(digest).map_err(|_| malformed("its digest is not sha256 and 64 digits"))?;
                (rest, Some(digest))
            }
        };
        // A colon after the last slash starts a tag; one before belongs to the registry's port.
        let (name, tag) = match rest.rfind(':') {
            Some(colon) if !rest[colon..].contains('/') => (&rest[..colon], Some(&rest[colon + 1..])),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(malformed("its tag is not up to 128 letters, digits, `_`, `.` and `-`"));
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if names_a_registry(first) => (
                RegistryHost::parse(first).ok_or_else(|| malformed("its registry is not a host name"))?,
                path,
            ),
            _ => match &naming.short_names {
                Some(short) => (short.registry.clone(), name),
                None if is_repository(name) => {
                    return Err(ReferenceError::NoRegistry { text: text.to_owned() });
                }
                None => return Err(malformed(REPOSITORY_RULE)),
            },
        };
        if !is_repository(path) {
            return Err(malformed(REPOSITORY_RULE));
        }
        let namespace = naming
            .short_names
            .as_ref()
            .filter(|short| short.registry == registry && !path.contains('/'))
            .and_then(|short| short.namespace.as_deref());
        let repository = match namespace {
            Some(namespace) => format!("{namespace}/{path}"),
            None => path.to_owned(),
        };
        if registry.as_str().len() + 1 + repository.len() > NAME_BYTES_MAX {
            return Err(malformed("it is longer than 255 bytes"));
        }
        if !naming.allowed.allows(&registry) {
            return Err(ReferenceError::NotAllowed { registry });
        }
        let tag = tag.map(str::to_owned).or_else(|| digest.is_none().then(|| TAG_DEFAULT.to_owned()));
        Ok(Self { registry, repository, tag, digest })
    }

    /// The registry's host, and port if the name has one.
    pub fn registry(&self) -> &RegistryHost {
        &self.registry
    }

    /// The repository's path in its registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. A name with a digest means the digest; its tag only tells people something.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest or index, if the name has one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same image by the digest of what was found under its name.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// What stands in the address of its manifest: the digest, or else the tag.
    pub(crate) fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => TAG_DEFAULT.to_owned(),
        }
    }
}

/// The full form, which reads back as the same name.
impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(out, "@{digest}"),
            None => Ok(()),
        }
    }
}

const REPOSITORY_RULE: &str =
    "parts of its path are lower-case letters and digits, with `.`, `_`, `__` or `-` between them";

/// Whether the part before the first slash is a registry rather than the start of a path: the rule that all clients share. Some also
/// take a part with capitals for one; hosts are not told apart by them, so such a name would mean something else when written again.
fn names_a_registry(first: &str) -> bool {
    first.contains(['.', ':', '[']) || first == "localhost"
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    bytes.len() <= TAG_BYTES_MAX
        && bytes.first().is_some_and(|first| word(*first))
        && bytes.iter().all(|byte| word(*byte) || matches!(byte, b'.' | b'-'))
}

fn is_repository(path: &str) -> bool {
    !path.is_empty() && path.len() <= NAME_BYTES_MAX && path.split('/').all(is_part)
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_part(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let mut at = 0;
    loop {
        let start = at;
        while bytes.get(at).is_some_and(|byte| plain(*byte)) {
            at += 1;
        }
        if at == start {
            return false;
        }
        let Some(separator) = bytes.get(at) else { return true };
        let run = bytes[at..].iter().take_while(|byte| *byte == separator).count();
        match (separator, run) {
            (b'.', 1) | (b'_', 1 | 2) | (b'-', _) => at += run,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;

//! What a build is asked for with: the fields of a form, checked.

use std::collections::BTreeMap;

use domain::MachineShape;
use oci::{Naming, Reference, ReferenceError};
use serde::{Deserialize, Serialize};
use store::BuildSource;

use crate::error::{ControlError, Kind};
use crate::names;

const DISK_MIB_DEFAULT: u32 = 1024;
const DISK_MIB_MIN: u32 = 64;
const CPUS_DEFAULT: u32 = 1;
const MEMORY_MIB_DEFAULT: u32 = 512;
const MEMORY_MIB_MAX: u32 = 65_536;
/// Where a Dockerfile is in its context.
const DOCKERFILE_DEFAULT: &str = "Dockerfile";
/// Values for `ARG`s.
const ARGS_MAX: usize = 256;

/// File parts with a meaning of their own, when there is no `dockerfile`.
pub(crate) const ROOTFS: &str = "rootfs";
pub(crate) const IMAGE: &str = "image";
pub(crate) const CONTEXT: &str = "context";

/// What a file part is, going by its name and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    Rootfs,
    Image,
    /// The whole context as an archive.
    Context,
    /// One file of the context.
    File,
}

/// What is kept of a request until its build ends, beside its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    Dockerfile {
        dockerfile: Dockerfile,
        context: Context,
        args: BTreeMap<String, String>,
        target: Option<String>,
    },
    Image {
        reference: String,
    },
    Archive,
    Tarball,
}

/// Where the Dockerfile is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dockerfile {
    Text(String),
    InContext(String),
}

/// How the context was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Context {
    Files,
    Archive,
}

impl Kept {
    pub(crate) fn source(&self) -> BuildSource {
        match self {
            Kept::Dockerfile { .. } => BuildSource::Dockerfile,
            Kept::Image { .. } => BuildSource::Image,
            Kept::Archive => BuildSource::Archive,
            Kept::Tarball => BuildSource::Tarball,
        }
    }
}

/// A build that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) disk_mib: u32,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) replace: bool,
    pub(crate) kept: Kept,
    /// What each file part is, in their order.
    pub(crate) parts: Vec<PartKind>,
}

/// What the server allows.
pub(crate) struct Allowed<'a> {
    pub(crate) disk_mib_max: u32,
    pub(crate) naming: &'a Naming,
}

/// The fields of a form.
#[derive(Debug, Default)]
pub(crate) struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Adds a field. One that was given is not given again.
    pub(crate) fn add(&mut self, name: &str, value: String) -> Result<(), ControlError> {
        match self.0.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(ControlError::invalid(format!("{} is given twice", names::shown(name)))),
        }
    }

    /// A field that says something.
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str, default: u32, min: u32, max: u32) -> Result<u32, ControlError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let number = text.trim().parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| ControlError::invalid(format!("{name} must be between {min} and {max}")))
    }

    fn switch(&self, name: &str) -> Result<bool, ControlError> {
        match self.text(name) {
            None | Some("false" | "False" | "0" | "no" | "off") => Ok(false),
            Some("true" | "True" | "1" | "yes" | "on") => Ok(true),
            Some(_) => Err(ControlError::invalid(format!("{name} must be true or false"))),
        }
    }

    fn args(&self) -> Result<BTreeMap<String, String>, ControlError> {
        let Some(text) = self.text("build_args") else { return Ok(BTreeMap::new()) };
        let args: BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|_| ControlError::invalid("build_args must be a JSON object of strings"))?;
        if args.len() > ARGS_MAX {
            return Err(ControlError::invalid(format!("there are more than {ARGS_MAX} build_args")));
        }
        Ok(args)
    }

    /// Reads the form. `parts` are names and types of the parts that are files.
    pub(crate) fn read(
        &self,
        parts: &[(String, Option<String>)],
        allowed: &Allowed<'_>,
    ) -> Result<Asked, ControlError> {
        let name = names::template_name(self.text("name").unwrap_or_default())?;
        let disk_mib = self.number("size_mb", DISK_MIB_DEFAULT, DISK_MIB_MIN, allowed.disk_mib_max)?;
        let cpus = self.number("cpu", CPUS_DEFAULT, 1, 64)?;
        let memory_mib = self.number("memory_mb", MEMORY_MIB_DEFAULT, 128, MEMORY_MIB_MAX)?;
        let vcpus = u8::try_from(cpus).unwrap_or(u8::MAX);
        MachineShape::new(vcpus, memory_mib).map_err(|error| ControlError::invalid(error.to_string()))?;
        let replace = self.switch("replace")?;
        let (kept, parts) = self.source(parts, allowed.naming)?;
        Ok(Asked { name, disk_mib, cpus, memory_mib, replace, kept, parts })
    }

    fn source(
        &self,
        parts: &[(String, Option<String>)],
        naming: &Naming,
    ) -> Result<(Kept, Vec<PartKind>), ControlError> {
        let dockerfile = self.text("dockerfile");
        let kinds: Vec<_> =
            parts.iter().map(|(name, kind)| part_kind(name, kind.as_deref(), dockerfile.is_some())).collect();
        let has = |wanted: PartKind| kinds.contains(&wanted);
        let image_ref = self.text("image_ref");
        let from_dockerfile = dockerfile.is_some() || has(PartKind::Context);
        let sources = [from_dockerfile, image_ref.is_some(), has(PartKind::Rootfs), has(PartKind::Image)];
        match sources.iter().filter(|there| **there).count() {
            1 => {}
            0 => {
                let message = "there is nothing to build from: give a dockerfile, an image_ref, or a file rootfs or image";
                return Err(ControlError::invalid(message));
            }
            _ => {
                return Err(ControlError::invalid(
                    "a template is built from one thing: more than one is given",
                ));
            }
        }
        if !from_dockerfile && has(PartKind::File) || has(PartKind::Context) && kinds.len() > 1 {
            return Err(ControlError::invalid("there are files beside what the template is built from"));
        }
        if kinds.len() > 1 && !from_dockerfile {
            return Err(ControlError::invalid("a file is given twice"));
        }
        let kept = if from_dockerfile {
            self.dockerfile(dockerfile, has(PartKind::Context))?
        } else if let Some(reference) = image_ref {
            check_reference(reference, naming)?;
            Kept::Image { reference: reference.to_owned() }
        } else if has(PartKind::Image) {
            Kept::Archive
        } else {
            Kept::Tarball
        };
        Ok((kept, kinds))
    }

    fn dockerfile(&self, text: Option<&str>, archive: bool) -> Result<Kept, ControlError> {
        let dockerfile = match (text, self.text("dockerfile_path")) {
            (Some(_), Some(_)) => {
                return Err(ControlError::invalid("both dockerfile and dockerfile_path are given"));
            }
            (Some(text), None) => Dockerfile::Text(text.to_owned()),
            (None, path) => {
                let path = path.unwrap_or(DOCKERFILE_DEFAULT);
                super::part_name::context_path(path)?;
                Dockerfile::InContext(path.to_owned())
            }
        };
        let context = if archive { Context::Archive } else { Context::Files };
        let target = self.text("target").map(str::to_owned);
        Ok(Kept::Dockerfile { dockerfile, context, args: self.args()?, target })
    }
}

/// In a form with a Dockerfile's text every file belongs to the context, whatever it is called; only an archive that says it is one
/// is the whole of it.
fn part_kind(name: &str, content_type: Option<&str>, has_dockerfile: bool) -> PartKind {
    let is_archive = matches!(
        content_type.map(|kind| kind.split(';').next().unwrap_or_default().trim()),
        Some("application/x-tar" | "application/gzip" | "application/x-gzip" | "application/x-gtar")
    );
    match name {
        CONTEXT if is_archive || !has_dockerfile => PartKind::Context,
        ROOTFS if !has_dockerfile => PartKind::Rootfs,
        IMAGE if !has_dockerfile => PartKind::Image,
        _ => PartKind::File,
    }
}

fn check_reference(text: &str, naming: &Naming) -> Result<(), ControlError> {
    match Reference::parse(text, naming) {
        Ok(_) => Ok(()),
        Err(error) => {
            let kind = match error {
                ReferenceError::NotAllowed { .. } => Kind::Forbidden,
                _ => Kind::Invalid,
            };
            let told = ControlError::new(kind, format!("image_ref: {error}"));
            Err(match builder::reference_hint(&error) {
                Some(hint) => told.hint(hint),
                None => told,
            })
        }
    }
}

#[cfg(test)]
mod tests;

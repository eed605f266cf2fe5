//! `RUN --mount=type=…,…`: directories that are there for one step.

use crate::error::Problem;

/// A mount, its fields in order, variables not put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawMount {
    pub(crate) kind: MountKind,
    /// From which stage or image; from the context when not said.
    pub(crate) from: Option<String>,
    pub(crate) fields: Vec<(String, Option<String>)>,
}

/// Kinds of mounts that can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountKind {
    Bind,
    Cache,
    Tmpfs,
}

impl RawMount {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let mut mount = Self { kind: MountKind::Bind, from: None, fields: Vec::new() };
        for field in text.split(',') {
            let (key, value) = match field.split_once('=') {
                Some((key, value)) => (key.to_ascii_lowercase(), Some(value.to_owned())),
                None => (field.to_ascii_lowercase(), None),
            };
            match (key.as_str(), value) {
                ("type", Some(value)) => mount.kind = kind(&value)?,
                ("from", Some(value)) if value.contains('$') => {
                    let hint = "give the stage a name with `FROM … AS name` and use that";
                    return Err(Problem::new("`from` of a mount takes no variables").hint(hint));
                }
                ("from", Some(value)) => mount.from = Some(value),
                (_, value) => mount.fields.push((key, value)),
            }
        }
        Ok(mount)
    }
}

fn kind(text: &str) -> Result<MountKind, Problem> {
    match text.to_ascii_lowercase().as_str() {
        "bind" => Ok(MountKind::Bind),
        "cache" => Ok(MountKind::Cache),
        "tmpfs" => Ok(MountKind::Tmpfs),
        "secret" | "ssh" => Err(Problem::new(format!("mounts of type `{text}` are not supported"))
            .hint("fetch what needs a secret before the build and COPY it")),
        _ => Err(Problem::new(format!("there are no mounts of type `{text}`"))
            .hint("use `bind`, `cache` or `tmpfs`")),
    }
}

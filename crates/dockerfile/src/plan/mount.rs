//! Plans what `RUN --mount` asks for.

use super::stage::State;
use super::{Mount, Origin};
use crate::error::Problem;
use crate::instruction::{MountKind, RawMount};
use crate::path;

/// Fields of a mount, variables put in.
#[derive(Debug, Default)]
struct Fields {
    source: Option<String>,
    target: Option<String>,
    writable: Option<bool>,
    id: Option<String>,
    size_bytes: Option<u64>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl State<'_> {
    pub(super) fn mount(&self, raw: &RawMount) -> Result<Mount, Problem> {
        let mut fields = Fields::default();
        for (key, value) in &raw.fields {
            let value = value.as_deref().map(|value| self.expand(value)).transpose()?;
            fields.add(raw.kind, key, value)?;
        }
        let Some(target) = fields.target.filter(|target| !target.is_empty()) else {
            return Err(Problem::new("the mount has no target").hint("add `target=/path`"));
        };
        let target = path::absolute(&self.config.working_dir, &target);
        if target == "/" {
            return Err(Problem::new("nothing can be mounted over the whole file system"));
        }
        Ok(match raw.kind {
            MountKind::Tmpfs => Mount::Tmpfs { target, size_bytes: fields.size_bytes },
            MountKind::Cache => {
                if raw.from.is_some() || fields.source.is_some() {
                    return Err(Problem::new(
                        "a cache that starts with the files of something else is not supported",
                    )
                    .hint("remove `from` and `source`; the cache then starts empty"));
                }
                Mount::Cache {
                    id: fields.id.unwrap_or_else(|| target.clone()),
                    target,
                    writable: fields.writable.unwrap_or(true),
                    mode: fields.mode.unwrap_or(0o755),
                    uid: fields.uid.unwrap_or(0),
                    gid: fields.gid.unwrap_or(0),
                }
            }
            MountKind::Bind => {
                let origin: Origin = self.origin(raw.from.as_deref())?;
                let wanted = fields.source.unwrap_or_default();
                let source = path::source(&wanted)
                    .ok_or_else(|| Problem::new(format!("`{wanted}` lies outside of what can be mounted")))?;
                Mount::Bind { origin, source, target, writable: fields.writable.unwrap_or(false) }
            }
        })
    }
}

impl Fields {
    fn add(&mut self, kind: MountKind, key: &str, value: Option<String>) -> Result<(), Problem> {
        let bad = |value: &str| Problem::new(format!("`{key}={value}` of the mount is not right"));
        let flag = |value: &Option<String>| match value.as_deref() {
            None | Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(other) => Err(bad(other)),
        };
        let number = |value: &str, radix| u32::from_str_radix(value, radix).map_err(|_| bad(value));
        let cache = kind == MountKind::Cache;
        match (key, value) {
            ("readonly" | "ro", value) => self.writable = Some(!flag(&value)?),
            ("readwrite" | "rw", value) => self.writable = Some(flag(&value)?),
            ("target" | "dst" | "destination", Some(value)) => self.target = Some(value),
            ("source" | "src", Some(value)) => self.source = Some(value),
            ("id", Some(value)) if cache => self.id = Some(value),
            ("sharing", Some(value)) if cache => {
                if !["shared", "private", "locked"].contains(&value.to_ascii_lowercase().as_str()) {
                    return Err(bad(&value));
                }
            }
            ("mode", Some(value)) if cache => self.mode = Some(number(&value, 8)?),
            ("uid", Some(value)) if cache => self.uid = Some(number(&value, 10)?),
            ("gid", Some(value)) if cache => self.gid = Some(number(&value, 10)?),
            ("size", Some(value)) if kind == MountKind::Tmpfs => {
                self.size_bytes = Some(size(&value).ok_or_else(|| bad(&value))?);
            }
            (key, _) => {
                return Err(Problem::new(format!(
                    "a mount of this type has no `{key}`, or it needs a value"
                )));
            }
        }
        Ok(())
    }
}

/// `64m`, `1g`, `512k` or bytes.
fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.find(|ch: char| !ch.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match &text[digits..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

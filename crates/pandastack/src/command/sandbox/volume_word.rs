//! A volume as the command line names it: `NAME`, `NAME:/PATH`, `NAME:ro`, `NAME:/PATH:ro`.

use contract::sandbox::VolumeRequest;

/// Reads it.
pub(super) fn volume(text: &str) -> Result<VolumeRequest, String> {
    let mut parts = text.split(':');
    let name = parts.next().filter(|name| !name.is_empty()).ok_or("a volume has a name")?;
    let mut request = VolumeRequest { name: name.to_owned(), read_only: None, mount: None };
    for part in parts {
        match part {
            "ro" if request.read_only.is_none() => request.read_only = Some(true),
            "rw" if request.read_only.is_none() => request.read_only = Some(false),
            path if path.starts_with('/') && request.mount.is_none() && request.read_only.is_none() => {
                request.mount = Some(path.to_owned());
            }
            path if path.starts_with('/') => return Err(format!("`{path}` does not belong there")),
            other => return Err(format!("`{other}` is neither an absolute path such as /mnt nor `ro`")),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_read() {
        for (text, mount, read_only) in [
            ("data", None, None),
            ("data:ro", None, Some(true)),
            ("data:/mnt", Some("/mnt"), None),
            ("data:/mnt/a b:ro", Some("/mnt/a b"), Some(true)),
            ("data:/mnt:rw", Some("/mnt"), Some(false)),
        ] {
            let expected = VolumeRequest { name: "data".into(), read_only, mount: mount.map(str::to_owned) };
            assert_eq!(volume(text), Ok(expected), "{text}");
        }
        for text in ["", ":/mnt", "data:", "data:mnt", "data:/a:/b", "data:ro:/mnt", "data:ro:ro"] {
            assert!(volume(text).is_err(), "{text}");
        }
    }
}

//! Certificate authorities that the host trusts beyond the public ones.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::spec::HostCertificates;
use crate::error::ImageError;

/// Where administrators put them, on the host and in the guest alike.
const FOLDER: &str = "usr/local/share/ca-certificates";
const CERTIFICATES_MAX: usize = 200;
const CERTIFICATE_LENGTH_MAX: u64 = 1 << 20;

/// A certificate file of the host.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub(super) file_name: String,
    pub(super) content: Vec<u8>,
}

/// The host's certificates, in the order of their names.
pub(super) fn read(inject: HostCertificates) -> Result<Vec<Certificate>, ImageError> {
    if inject == HostCertificates::Leave {
        return Ok(Vec::new());
    }
    read_folder(&Path::new("/").join(FOLDER))
        .map_err(|error| ImageError::io("reading the host's certificates", error))
}

fn read_folder(folder: &Path) -> io::Result<Vec<Certificate>> {
    let listing = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing?,
    };
    let mut certificates = Vec::new();
    for entry in listing.take(CERTIFICATES_MAX) {
        let path = entry?.path();
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !file_name.ends_with(".crt") || !path.is_file() {
            continue;
        }
        let mut content = Vec::new();
        fs::File::open(&path)?.take(CERTIFICATE_LENGTH_MAX).read_to_end(&mut content)?;
        certificates.push(Certificate { file_name: file_name.to_owned(), content });
    }
    certificates.sort_by(|one, other| one.file_name.cmp(&other.file_name));
    Ok(certificates)
}

/// Puts them where the package `ca-certificates` looks when it is set up. The tree must still be empty.
pub(super) fn place(root: &Path, certificates: &[Certificate]) -> io::Result<()> {
    if certificates.is_empty() {
        return Ok(());
    }
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    for certificate in certificates {
        fs::write(folder.join(&certificate.file_name), &certificate.content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certificates_are_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b.crt"), "B").unwrap();
        fs::write(dir.path().join("a.crt"), "A").unwrap();
        fs::write(dir.path().join("key.pem"), "secret").unwrap();
        fs::create_dir(dir.path().join("sub.crt")).unwrap();
        let found = read_folder(dir.path()).unwrap();
        let names: Vec<_> = found.iter().map(|certificate| certificate.file_name.as_str()).collect();
        assert_eq!(names, ["a.crt", "b.crt"]);
        place(&dir.path().join("root"), &found).unwrap();
        assert_eq!(fs::read(dir.path().join("root").join(FOLDER).join("b.crt")).unwrap(), b"B");
        assert!(read_folder(&dir.path().join("absent")).unwrap().is_empty());
    }
}

//! The registry that Debian ships, on a loopback port of its own, and certificates for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use oci::{Descriptor, Image, Layout};

use crate::server::send;

const PROGRAM: &str = "/usr/bin/docker-registry";
/// `tester` with the password `pass:word`.
const HTPASSWD: &str = "tester:$2b$04$GaNZMzQpZ2xTkke5pFijzOTx6PehzUg.CfeHKR97WVABXM2qtLRDq\n";

/// How a registry lets people in.
pub(crate) enum Door<'a> {
    Open,
    Password,
    Token { realm: &'a str, keys: &'a Keys },
    Tls { keys: &'a Keys },
}

/// A running registry, ended when dropped.
pub(crate) struct Registry {
    pub(crate) host: String,
    process: Child,
}

impl Registry {
    /// Starts one on the content in `folder`; nothing, said loudly, where the host has none.
    pub(crate) fn start(folder: &Path, door: &Door<'_>) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("SKIPPED: no {PROGRAM} on this host; scripts/setup --dev installs it");
            return None;
        }
        let (mut http, mut auth) = (String::new(), String::new());
        match door {
            Door::Open => {}
            Door::Password => {
                let path = folder.join("htpasswd");
                std::fs::write(&path, HTPASSWD).unwrap();
                auth = format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", path.display());
            }
            Door::Token { realm, keys } => {
                auth = format!(
                    "auth: {{token: {{realm: \"{realm}\", service: test, issuer: tester, rootcertbundle: {}}}}}\n",
                    keys.path("leaf.pem").display()
                );
            }
            Door::Tls { keys } => {
                let (certificate, key) = (keys.path("leaf.pem"), keys.path("leaf.key"));
                http = format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display());
            }
        }
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"{http}}}\n{auth}",
            folder.join("content").display()
        );
        let path = folder.join("config.yml");
        std::fs::write(&path, config).unwrap();
        let mut process = Command::new(PROGRAM)
            .arg("serve")
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let host = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the registry did not start: {said}") };
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split([',', '"', ' ']).next().unwrap().to_owned();
            }
            said.push_str(&line);
        };
        // Whatever it says later must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { host, process })
    }

    /// Puts a blob into a repository.
    pub(crate) async fn push_blob(&self, repository: &str, digest: &oci::Digest, content: &[u8]) {
        let request = format!("POST /v2/{repository}/blobs/uploads/");
        let (status, place) = send(&self.host, &request, "application/octet-stream", b"").await;
        assert_eq!(status, 202);
        let place = place.split_once(&self.host).map_or(place.as_str(), |(_, path)| path).to_owned();
        let joint = if place.contains('?') { '&' } else { '?' };
        let request = format!("PUT {place}{joint}digest={digest}");
        let (status, _) = send(&self.host, &request, "application/octet-stream", content).await;
        assert_eq!(status, 201);
    }

    pub(crate) async fn push_manifest(&self, repository: &str, tag: &str, kind: &str, content: &[u8]) {
        let (status, _) =
            send(&self.host, &format!("PUT /v2/{repository}/manifests/{tag}"), kind, content).await;
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(content));
    }

    /// Puts a whole image into a repository.
    pub(crate) async fn push(&self, repository: &str, tag: &str, layout: &Layout, image: &Image) {
        let read = |blob: &Descriptor| layout.read_blob(blob, 1 << 30).unwrap();
        for blob in std::iter::once(&image.manifest.config).chain(&image.manifest.layers) {
            self.push_blob(repository, &blob.digest, &read(blob)).await;
        }
        self.push_manifest(repository, tag, &image.descriptor.media_type, &read(&image.descriptor)).await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A certificate authority of the test's own, and a certificate by it for this machine.
pub(crate) struct Keys {
    folder: PathBuf,
}

impl Keys {
    pub(crate) fn new(folder: &Path) -> Self {
        let keys = Self { folder: folder.to_owned() };
        std::fs::write(keys.path("ext"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n").unwrap();
        for arguments in [
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=tests",
            "req -newkey rsa:2048 -nodes -keyout leaf.key -out leaf.csr -subj /CN=registry",
            "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out leaf.pem -days 2 -extfile ext",
            "x509 -in leaf.pem -outform DER -out leaf.der",
            "x509 -in ca.pem -outform DER -out ca.der",
        ] {
            keys.openssl(arguments, b"");
        }
        keys
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Signs as RS256 does.
    pub(crate) fn sign(&self, text: &[u8]) -> Vec<u8> {
        self.openssl("dgst -sha256 -sign leaf.key", text)
    }

    fn openssl(&self, arguments: &str, input: &[u8]) -> Vec<u8> {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(&self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        let done = process.wait_with_output().unwrap();
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    }
}

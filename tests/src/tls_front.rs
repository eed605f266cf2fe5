//! TLS in front of a server: a certificate for `localhost`, of a CA that nobody else knows.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::command;
use crate::packed::Folder;
use crate::published;

const OPENSSL: &str = "/usr/bin/openssl";
/// A key, and a certificate that holds for long enough.
const NEW: [&str; 9] =
    ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
const OF_A_SERVER: [&str; 4] =
    ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];

/// A program that passes on what comes with TLS, ended when dropped.
pub struct TlsFront {
    folder: Folder,
    process: Child,
    port: u16,
}

impl TlsFront {
    /// Starts it in front of a server; the name tells it from others of this process.
    pub fn start(name: &str, server: SocketAddr) -> Result<Self> {
        let folder = Folder::new(name)?;
        let file = |name: &str| folder.path().join(name).into_os_string();
        let (authority, authority_key) = (file("authority.pem"), file("authority.key"));
        let (certificate, key) = (file("certificate.pem"), file("certificate.key"));
        let make = |certificate: &OsStr, key: &OsStr, subject: &str, more: &[&OsStr]| {
            let mut arguments: Vec<&OsStr> = NEW.map(OsStr::new).into();
            arguments.extend([OsStr::new("-out"), certificate, OsStr::new("-keyout"), key]);
            arguments.extend([OsStr::new("-subj"), OsStr::new(subject)]);
            arguments.extend(more);
            command::run(OPENSSL, &arguments).with_context(|| format!("make a certificate of {subject}"))
        };
        make(&authority, &authority_key, "/CN=an authority of a test", &[])?;
        let mut signed: Vec<&OsStr> = OF_A_SERVER.map(OsStr::new).into();
        signed.extend([OsStr::new("-CA"), &authority, OsStr::new("-CAkey"), &authority_key]);
        make(&certificate, &key, "/CN=localhost", &signed)?;

        let mut command = Command::new("python3");
        command.arg(published::scripts().join("tls_proxy.py")).args([&certificate, &key]);
        command.args([server.ip().to_string(), server.port().to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        BufReader::new(process.stdout.take().context("no output")?).read_line(&mut said)?;
        let port = said.trim().parse().with_context(|| format!("the proxy says `{said}`"))?;
        Ok(Self { folder, process, port })
    }

    /// Where the server is now.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The certificate of its CA.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        // Ended already is fine.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

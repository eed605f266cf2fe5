//! The registry that Debian ships, on a loopback port of its own, and pushing images to it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use oci::{Descriptor, Image, Layout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PROGRAM: &str = "/usr/bin/docker-registry";

/// A running registry, ended when dropped.
pub(crate) struct Registry {
    pub(crate) host: String,
    process: Child,
}

impl Registry {
    /// Starts one with its content below `directory`.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let content = directory.join("content");
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"}}\n",
            content.display()
        );
        let path = directory.join("config.yml");
        std::fs::write(&path, config)?;
        let mut process = Command::new(PROGRAM)
            .arg("serve")
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {PROGRAM}; scripts/setup --dev installs it"))?;
        let mut lines = BufReader::new(process.stderr.take().context("its output")?).lines();
        let host = loop {
            let line = lines.next().context("the registry did not start")??;
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split([',', '"', ' ']).next().unwrap_or_default().to_owned();
            }
        };
        // Whatever it says later must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { host, process })
    }

    /// Puts an image into a repository and tells its name.
    pub(crate) async fn push(&self, repository: &str, layout: &Layout, image: &Image) -> Result<String> {
        let read = |blob: &Descriptor| layout.read_blob(blob, 1 << 30);
        for blob in std::iter::once(&image.manifest.config).chain(&image.manifest.layers) {
            let request = format!("POST /v2/{repository}/blobs/uploads/");
            let (status, place) = self.send(&request, "application/octet-stream", b"").await?;
            ensure!(status == 202, "the registry answered {status}");
            let place = place.split_once(&self.host).map_or(place.as_str(), |(_, path)| path).to_owned();
            let joint = if place.contains('?') { '&' } else { '?' };
            let request = format!("PUT {place}{joint}digest={}", blob.digest);
            let (status, _) = self.send(&request, "application/octet-stream", &read(blob)?).await?;
            ensure!(status == 201, "the registry answered {status}");
        }
        let request = format!("PUT /v2/{repository}/manifests/latest");
        let manifest = read(&image.descriptor)?;
        let (status, _) = self.send(&request, &image.descriptor.media_type, &manifest).await?;
        ensure!(status == 201, "the registry answered {status}");
        Ok(format!("{}/{repository}", self.host))
    }

    /// Sends a request and tells the status and the `Location` of the answer.
    async fn send(&self, request: &str, kind: &str, body: &[u8]) -> Result<(u16, String)> {
        let mut connection = TcpStream::connect(&self.host).await?;
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        connection.write_all(head.as_bytes()).await?;
        connection.write_all(body).await?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).context("a status")?.parse()?;
        let place = answer.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default();
        Ok((status, place.trim().to_owned()))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! A registry of container images on a loopback port of its own, and a small image to fill it with.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use oci::{Compression, Image, ImageConfig, Layout, Platform, RootFs, RunConfig, Times, write_tree};

use crate::command;

const PROGRAM: &str = "/usr/bin/docker-registry";
/// What a shell needs, taken from this host.
const SHELL: [(&str, &str); 3] = [
    ("/bin/dash", "bin/sh"),
    ("/lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libc.so.6"),
    ("/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"),
];

/// A running registry, ended when dropped.
pub struct Registry {
    host: String,
    process: Child,
}

impl Registry {
    /// Starts an empty one with its content in `folder`; nothing, said loudly, where the host has none.
    pub fn start(folder: &Path) -> Result<Option<Self>> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("SKIPPED: no {PROGRAM} on this host; scripts/setup --dev installs it");
            return Ok(None);
        }
        fs::create_dir_all(folder)?;
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"}}\n",
            folder.join("content").display()
        );
        let path = folder.join("config.yml");
        fs::write(&path, config)?;
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(path).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().context("start the registry")?;
        let mut lines = BufReader::new(process.stderr.take().context("no standard error")?).lines();
        let mut said = String::new();
        let host = loop {
            let Some(Ok(line)) = lines.next() else { anyhow::bail!("the registry ended: {said}") };
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split([',', '"', ' ']).next().unwrap_or_default().to_owned();
            }
            said.push_str(&line);
        };
        ensure!(!host.is_empty(), "the registry does not say where it listens");
        // Whatever it says later must not block it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Some(Self { host, process }))
    }

    /// Puts an image from an archive into it; what it is then called.
    pub fn push(&self, archive: &Path, name: &str) -> Result<String> {
        let reference = format!("{}/{name}", self.host);
        let from = format!("oci-archive:{}", archive.display());
        let to = format!("docker://{reference}");
        let arguments = ["copy", "--quiet", "--dest-tls-verify=false", &from, &to];
        command::run("skopeo", &arguments).context("fill the registry")?;
        Ok(reference)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Ended already is fine.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Makes the files of a tiny system: this host's shell, and a file `/mark` that says `mark`.
pub fn shell_tree(folder: &Path, mark: &str) -> Result<PathBuf> {
    let tree = folder.join("tree");
    for (from, to) in SHELL {
        let to = tree.join(to);
        fs::create_dir_all(to.parent().context("a file in no directory")?)?;
        fs::copy(from, &to).with_context(|| format!("copy {from}"))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(tree.join("mark"), mark)?;
    Ok(tree)
}

/// A tree as a tar archive.
pub fn tarball(tree: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_tree(tree, Times::Kept, &mut bytes)?;
    Ok(bytes)
}

/// A tree as an image in an archive, which says how it wants to be run.
pub fn image_archive(folder: &Path, tree: &Path) -> Result<PathBuf> {
    let layout = Layout::open(&folder.join("layout"))?;
    let layer = layout.write_layer(Compression::Gzip, |out| write_tree(tree, Times::Kept, out))?;
    let config = ImageConfig {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
        created: None,
        author: None,
        config: RunConfig {
            env: vec!["PATH=/bin".to_owned(), "GREETING=hello from the image".to_owned()],
            working_dir: "/lib".to_owned(),
            ..RunConfig::default()
        },
        rootfs: RootFs::default(),
        history: Vec::new(),
    };
    let image = layout.write_image("made", config, &[layer])?;
    let image = Image::load(&layout, &image, &Platform::linux_amd64())?;
    let path = folder.join("image.tar");
    layout.write_archive(&image, None, fs::File::create(&path)?)?;
    Ok(path)
}

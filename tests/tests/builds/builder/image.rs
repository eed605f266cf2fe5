//! A small image with a shell and a few programs, made from those of this host.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use oci::{Compression, Image, ImageConfig, Layout, Platform, RunConfig, Times, write_tree};

const PROGRAMS: [&str; 16] = [
    "sh", "cat", "ls", "stat", "id", "sleep", "env", "cp", "mkdir", "chmod", "chown", "touch", "test",
    "readlink", "seq", "pwd",
];
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n";
const GROUPS: &str = "root:x:0:\napp:x:1234:\nstaff:x:50:app\n";

/// Puts the programs and the libraries they need below `root`.
pub(crate) fn tree(root: &Path) -> Result<()> {
    tree_with(root, &[])
}

/// The same with further programs.
pub(crate) fn tree_with(root: &Path, more: &[&str]) -> Result<()> {
    for directory in ["bin", "etc", "root", "srv", "tmp", "lib64", "usr/lib"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::write(root.join("etc/passwd"), USERS)?;
    fs::write(root.join("etc/group"), GROUPS)?;
    let mut libraries = BTreeSet::new();
    for name in PROGRAMS.iter().chain(more) {
        let program = ["/bin", "/usr/bin"].iter().map(|folder| Path::new(folder).join(name));
        let program =
            program.into_iter().find(|path| path.exists()).with_context(|| format!("find {name}"))?;
        fs::copy(&program, root.join("bin").join(name))?;
        let output = Command::new("ldd").arg(&program).output()?;
        let text = String::from_utf8(output.stdout)?;
        libraries.extend(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
    }
    for library in libraries {
        let to = root.join(library.strip_prefix("/")?);
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::copy(&library, &to)?;
    }
    Ok(())
}

/// That tree as an image.
pub(crate) fn image(layout: &Layout, root: &Path) -> Result<Image> {
    let layer = layout.write_layer(Compression::Gzip, |out| write_tree(root, Times::Kept, out))?;
    let config = ImageConfig {
        architecture: "amd64".into(),
        os: "linux".into(),
        config: RunConfig {
            env: vec!["PATH=/bin".into(), "FROM_IMAGE=yes".into()],
            cmd: vec!["/bin/sh".into()],
            ..RunConfig::default()
        },
        ..ImageConfig::default()
    };
    let descriptor = layout.write_image("small", config, &[layer])?;
    Ok(Image::load(layout, &descriptor, &Platform::linux_amd64())?)
}

/// A program that needs nothing but a kernel.
pub(crate) fn static_program(directory: &Path) -> Result<PathBuf> {
    let (source, program) = (directory.join("hello.c"), directory.join("hello"));
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"hello from nothing\"); return 0; }\n")?;
    let compiled = Command::new("cc").args(["-static", "-Os", "-o"]).arg(&program).arg(&source).output()?;
    ensure!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Ok(program)
}

/// What a disk says about itself, without being mounted.
pub(crate) fn inspect(disk: &Path, question: &str) -> Result<String> {
    let output = Command::new("/sbin/debugfs").args(["-R", question]).arg(disk).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! Copying between this host and a sandbox.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use client::Api;

use crate::guest_command::absolute;
use crate::output::say;
use crate::table::size;
use crate::transfer::{self, Manner, Moved};

/// Options of `cp`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to copy: a local path, or SANDBOX:PATH.
    from: String,
    /// Where to: a local path, or SANDBOX:PATH. Into it, if it is a directory; SANDBOX: is the home directory of its user.
    to: String,
    /// Copy what symbolic links lead to instead of the links.
    #[arg(long, short = 'L')]
    follow: bool,
    /// Keep times, and permissions of directories too.
    #[arg(long, short)]
    archive: bool,
    /// Directories are copied with everything in them anyway; taken because `cp` needs it.
    #[arg(long, short, hide = true)]
    recursive: bool,
}

/// A path here or there.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Here(PathBuf),
    There { sandbox: String, path: String },
}

/// A path with a colon before any slash is one in a sandbox; `./a:b` is one here.
fn place(text: &str) -> Place {
    match text.split_once(':') {
        Some((sandbox, path)) if !sandbox.is_empty() && !sandbox.contains(['/', '.']) => {
            Place::There { sandbox: sandbox.to_owned(), path: path.to_owned() }
        }
        _ => Place::Here(PathBuf::from(text)),
    }
}

pub(super) async fn run(api: &Api, arguments: &Arguments) -> anyhow::Result<()> {
    let manner = Manner { follow: arguments.follow, archive: arguments.archive };
    match (place(&arguments.from), place(&arguments.to)) {
        (Place::Here(local), Place::There { sandbox, path }) => {
            send(api, &sandbox, &local, &path, manner).await
        }
        (Place::There { sandbox, path }, Place::Here(local)) => {
            fetch(api, &sandbox, &path, &local, manner).await
        }
        (Place::Here(_), Place::Here(_)) => {
            bail!("neither path is in a sandbox: one of them has to be SANDBOX:PATH")
        }
        (Place::There { .. }, Place::There { .. }) => {
            bail!("both paths are in sandboxes: copy to this host first, then on")
        }
    }
}

/// Sends a file or a directory.
pub(crate) async fn send(
    api: &Api,
    sandbox: &str,
    local: &Path,
    path: &str,
    manner: Manner,
) -> anyhow::Result<()> {
    let about = std::fs::metadata(local).with_context(|| format!("look at {}", local.display()))?;
    let path = &absolute(api, sandbox, path).await?;
    let into = path.ends_with('/')
        || match api.stat_file(sandbox, path).await {
            Ok(entry) => entry.is_dir,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
    let mut target = path.to_owned();
    // The contents of `dir/.` go into the directory itself, as with `cp`.
    let contents = about.is_dir() && matches!(local.components().next_back(), Some(Component::CurDir));
    let contents = contents || local.as_os_str().as_encoded_bytes().ends_with(b"/.");
    if into && !contents {
        let name = local.canonicalize()?;
        let name = name.file_name().and_then(|name| name.to_str()).context("it has no name to keep")?;
        target = format!("{}/{name}", path.trim_end_matches('/'));
    }
    let label = format!("sending {}", local.display());
    let moved = transfer::send(api, sandbox, &[(local.to_owned(), target.clone())], manner, &label).await?;
    said(moved, &format!("{sandbox}:{target}"));
    Ok(())
}

/// Fetches a file or a directory.
pub(crate) async fn fetch(
    api: &Api,
    sandbox: &str,
    path: &str,
    local: &Path,
    manner: Manner,
) -> anyhow::Result<()> {
    let contents = path.ends_with("/.") || path == ".";
    let path = &*absolute(api, sandbox, path).await?;
    let path = if contents { path.trim_end_matches('.') } else { path };
    let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    let mut entry = api.stat_file(sandbox, path).await?;
    // A link is fetched as what it leads to.
    path.clone_into(&mut entry.path);
    let mut target = local.to_owned();
    let into = local.is_dir() || local.as_os_str().as_encoded_bytes().ends_with(b"/");
    if into && !contents {
        let name = Path::new(path).file_name().context("it has no name to keep: name a directory for it")?;
        target = local.join(name);
    }
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("make the directory {}", folder.display()))?;
    }
    let moved = transfer::fetch(api, sandbox, &entry, &target, manner).await?;
    said(moved, &target.display().to_string());
    Ok(())
}

fn said(moved: Moved, target: &str) {
    let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let links = match moved.links {
        0 => String::new(),
        links => format!(" and {}", counted(links, "link")),
    };
    say(format!("{target}: {}{links}, {}", counted(moved.files, "file"), size(moved.bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_come_before_a_colon() {
        let there = |sandbox: &str, path: &str| Place::There { sandbox: sandbox.into(), path: path.into() };
        assert_eq!(place("0a1b:/workspace"), there("0a1b", "/workspace"));
        assert_eq!(place("0a1b:"), there("0a1b", ""));
        assert_eq!(place("0a1b:a/b"), there("0a1b", "a/b"));
        for local in ["file", "./a:b", "/a:b", "dir/a:b", ":x", "../a:b"] {
            assert_eq!(place(local), Place::Here(local.into()), "{local}");
        }
    }
}

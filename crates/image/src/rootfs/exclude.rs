//! Leaves out of a root file system what no program needs: manuals, translations. Follows dpkg's own rules, so that
//! packages installed later in the guest are treated alike.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const DPKG_SETTINGS: &str = "etc/dpkg/dpkg.cfg.d";
const FILE_NAME: &str = "80-pandastack";

/// Tells dpkg what to leave out, now and in the guest. It also need not wait for the disk after each file: what is
/// half installed when a machine dies is installed again.
pub(super) fn configure_dpkg(root: &Path, excludes: &[String], includes: &[String]) -> io::Result<()> {
    let folder = root.join(DPKG_SETTINGS);
    fs::create_dir_all(&folder)?;
    let excludes = excludes.iter().map(|pattern| format!("path-exclude={pattern}\n"));
    let includes = includes.iter().map(|pattern| format!("path-include={pattern}\n"));
    let settings: String =
        std::iter::once("force-unsafe-io\n".to_owned()).chain(excludes).chain(includes).collect();
    fs::write(folder.join(FILE_NAME), settings)
}

/// Removes what was unpacked before dpkg itself was there to leave it out.
pub(super) fn remove(root: &Path, excludes: &[String], includes: &[String]) -> io::Result<()> {
    for pattern in excludes {
        // Only folders below the fixed part of the pattern can hold matches.
        let fixed = &pattern[..pattern.find('*').unwrap_or(pattern.len())];
        let start = fixed.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Some(start) = folder_without_links(root, start) else { continue };
        let mut open = vec![start];
        let mut folders = Vec::new();
        while let Some(folder) = open.pop() {
            remove_files(root, &folder, excludes, includes, &mut open)?;
            folders.push(folder);
        }
        // Deepest last: folders that became empty go too, those with an exception in them stay.
        for folder in folders.iter().skip(1).rev() {
            let path = guest_path(root, folder);
            if excluded(&format!("{path}/"), excludes, &[]) {
                let _ = fs::remove_dir(folder);
            }
        }
    }
    Ok(())
}

fn remove_files(
    root: &Path,
    folder: &Path,
    excludes: &[String],
    includes: &[String],
    open: &mut Vec<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open.push(entry.path());
        } else if excluded(&guest_path(root, &entry.path()), excludes, includes) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The folder in the tree, unless it or a folder above it is a link: that could lead out of the tree.
fn folder_without_links(root: &Path, path: &str) -> Option<PathBuf> {
    let mut folder = root.to_owned();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        folder.push(part);
        if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return None;
        }
    }
    Some(folder)
}

fn guest_path(root: &Path, path: &Path) -> String {
    format!("/{}", path.strip_prefix(root).unwrap_or(path).to_string_lossy())
}

fn excluded(path: &str, excludes: &[String], includes: &[String]) -> bool {
    let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, path));
    any(excludes) && !any(includes)
}

/// `*` stands for any number of any characters, `/` among them.
fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(position) = rest.find(part) else { return false };
        rest = &rest[position + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_dpkg_matches_them() {
        for (pattern, path, expected) in [
            ("/usr/share/doc/*", "/usr/share/doc/git/README", true),
            ("/usr/share/doc/*", "/usr/share/docs", false),
            ("/usr/share/doc/*/copyright", "/usr/share/doc/git/copyright", true),
            ("/usr/share/doc/*/copyright", "/usr/share/doc/git/copyright.gz", false),
            ("/usr/lib/python3*/EXTERNALLY-MANAGED", "/usr/lib/python3.11/EXTERNALLY-MANAGED", true),
            ("/etc/motd", "/etc/motd", true),
            ("/etc/motd", "/etc/motd.d", false),
            ("*", "/anything", true),
            ("/a*b*c", "/axxbyyc", true),
            ("/a*b*c", "/axxcyyb", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn exceptions_and_links_out_of_the_tree_stay() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let outside = dir.path().join("outside");
        fs::create_dir_all(root.join("usr/share/doc/git/contrib")).unwrap();
        fs::create_dir_all(root.join("usr/share/doc/empty")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "x").unwrap();
        for file in ["git/copyright", "git/README", "git/contrib/hook"] {
            fs::write(root.join("usr/share/doc").join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(&outside, root.join("usr/share/doc/link")).unwrap();
        let excludes = ["/usr/share/doc/*".to_owned(), "/usr/share/man/*".to_owned()];
        let includes = ["/usr/share/doc/*/copyright".to_owned()];
        remove(&root, &excludes, &includes).unwrap();
        assert!(root.join("usr/share/doc/git/copyright").exists());
        assert!(!root.join("usr/share/doc/git/README").exists());
        assert!(!root.join("usr/share/doc/git/contrib").exists());
        assert!(!root.join("usr/share/doc/empty").exists());
        assert!(!root.join("usr/share/doc/link").is_symlink());
        assert!(outside.join("file").exists());
    }
}

//! Where volumes may be mounted. Rules only.

use crate::error::ControlError;
use crate::names;

/// File systems of the kernel's: nothing of a user's lies there.
const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Longest path of a mount.
const MOUNT_BYTES_MAX: usize = 1024;

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path to mount a volume at, without slashes at its end.
pub(crate) fn mount_path(text: &str) -> Result<String, ControlError> {
    let refused = |why: &str| {
        ControlError::invalid(format!("mount {}: {why}", names::shown(text)))
            .hint("name an absolute path such as /mnt")
    };
    let path = text.trim_end_matches('/');
    if !text.starts_with('/') {
        return Err(refused("it is not an absolute path"));
    }
    if path.is_empty() {
        return Err(refused("the root directory is taken"));
    }
    if path.len() > MOUNT_BYTES_MAX || path.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(refused("it is not a usable path"));
    }
    if path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return Err(refused("it may not hold empty parts, `.` or `..`"));
    }
    if RESERVED.iter().any(|reserved| is_below(path, reserved)) {
        return Err(refused("nothing can be mounted in /proc, /sys and /dev"));
    }
    Ok(path.to_owned())
}

/// Volumes are mounted in their order: none may lie where another is, nor hide one that was mounted before it.
pub(crate) fn check_order<'a>(mounts: impl Iterator<Item = &'a str>) -> Result<(), ControlError> {
    let mut before: Vec<&str> = Vec::new();
    for mount in mounts {
        if before.contains(&mount) {
            return Err(ControlError::invalid(format!("two volumes have the mount {mount}")));
        }
        if let Some(hidden) = before.iter().find(|earlier| is_below(earlier, mount)) {
            return Err(ControlError::invalid(format!("mount {mount} would hide {hidden}"))
                .hint(format!("name the volume of {mount} first")));
        }
        before.push(mount);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_absolute_and_out_of_the_kernels_way() {
        for (text, expected) in
            [("/mnt", "/mnt"), ("/mnt/", "/mnt"), ("/a/b c", "/a/b c"), ("/device", "/device")]
        {
            assert_eq!(mount_path(text).unwrap(), expected);
        }
        for text in [
            "", "mnt", "/", "//", "/a//b", "/a/../b", "/./a", "/proc", "/proc/x", "/sys/", "/dev/shm",
            "/a\0b", "/a\nb",
        ] {
            assert!(mount_path(text).is_err(), "{text:?}");
        }
        assert!(mount_path(&format!("/{}", "a".repeat(2000))).is_err());
    }

    #[test]
    fn no_mount_hides_another() {
        let check = |mounts: &[&str]| check_order(mounts.iter().copied()).is_ok();
        assert!(check(&["/a", "/b", "/a/c", "/ab"]));
        assert!(!check(&["/a", "/b", "/a"]));
        assert!(!check(&["/a/c", "/a"]));
    }
}

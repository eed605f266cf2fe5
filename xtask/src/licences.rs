//! `cargo xtask licences`: what the project is built from may be used, is wanted, and comes from where it should.
//!
//! The lists are those of `deny.toml`, so that `cargo deny` and this check cannot disagree. This one needs nothing but cargo, so it
//! always runs. It knows nothing of security advisories.

mod expression;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::Findings;

/// The licence of the project's own packages.
const OWN_LICENCE: &str = "Apache-2.0";

/// What `deny.toml` says.
#[derive(Debug)]
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
    registries: BTreeSet<String>,
}

/// Looks at every package that is built, for any platform and with any feature.
pub(crate) fn check(root: &Path) -> anyhow::Result<Findings> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("read deny.toml")?;
    let rules = Rules::parse(&text).context("understand deny.toml")?;
    let metadata = cargo(root, &["metadata", "--format-version", "1", "--locked", "--all-features"])?;
    let mut metadata: Value = serde_json::from_slice(&metadata).context("understand cargo metadata")?;
    let built = built(root)?;
    if let Some(packages) = metadata.get_mut("packages").and_then(Value::as_array_mut) {
        let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
        packages.retain(|package| built.contains(&(text(package, "name"), text(package, "version"))));
    }
    judge(&metadata, &rules)
}

/// Names and versions of what is built. `Cargo.lock` and `cargo metadata` also list packages that a feature mentions (`ring?/alloc`) but
/// does not turn on.
fn built(root: &Path) -> anyhow::Result<BTreeSet<(String, String)>> {
    let tree = [
        "tree",
        "--workspace",
        "--locked",
        "--all-features",
        "--target",
        "all",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let output = String::from_utf8(cargo(root, &tree)?).context("understand cargo tree")?;
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(output.lines().filter_map(package).collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(root).output().context("run cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

impl Rules {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| {
            let value = table.get(section).and_then(|section| section.get(key));
            value.and_then(toml::Value::as_array).with_context(|| format!("[{section}] has no list `{key}`"))
        };
        let strings = |section: &str, key: &str| -> anyhow::Result<BTreeSet<String>> {
            let of = |value: &toml::Value| {
                value.as_str().map(str::to_owned).context("a list holds more than text")
            };
            list(section, key)?.iter().map(of).collect()
        };
        let name = |value: &toml::Value| {
            let name = value.as_str().or_else(|| value.get("crate")?.as_str());
            name.map(str::to_owned).context("a banned crate has no name")
        };
        Ok(Self {
            licences: strings("licenses", "allow")?,
            banned: list("bans", "deny")?.iter().map(name).collect::<anyhow::Result<_>>()?,
            registries: strings("sources", "allow-registry")?,
        })
    }
}

fn judge(metadata: &Value, rules: &Rules) -> anyhow::Result<Findings> {
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo named no packages")?;
    let mut findings = Findings { looked_at: format!("{} packages", packages.len()), ..Findings::default() };
    for package in packages {
        let text = |key: &str| package.get(key).and_then(Value::as_str);
        let name = text("name").context("a package has no name")?;
        let shown = format!("{name} {}", text("version").unwrap_or_default());
        let licence = text("license");
        let Some(source) = text("source") else {
            if licence != Some(OWN_LICENCE) {
                findings.errors.push(format!("{shown}: the project's packages are under {OWN_LICENCE}"));
            }
            continue;
        };
        if rules.banned.contains(name) {
            findings.errors.push(format!("{shown}: banned by deny.toml"));
        }
        if !source.strip_prefix("registry+").is_some_and(|registry| rules.registries.contains(registry)) {
            findings.errors.push(format!("{shown}: comes from {source}, which deny.toml does not allow"));
        }
        match licence.map(|licence| expression::is_met(licence, &|id| rules.licences.contains(id))) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                findings.errors.push(format!("{shown}: `{}` is not allowed", licence.unwrap_or_default()));
            }
            Some(Err(error)) => findings.errors.push(format!("{shown}: its licence is unreadable: {error}")),
            None => findings.errors.push(format!("{shown}: names no licence")),
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        [bans]
        deny = [{ crate = "ring" }, "openssl"]
        [sources]
        allow-registry = ["https://registry.example/index"]
    "#;
    const REGISTRY: &str = "registry+https://registry.example/index";

    fn errors(name: &str, licence: Value, source: Value) -> Vec<String> {
        let package = json!({ "name": name, "version": "1.0.0", "license": licence, "source": source });
        judge(&json!({ "packages": [package] }), &Rules::parse(RULES).unwrap()).unwrap().errors
    }

    #[test]
    fn packages_are_judged() {
        assert_eq!(errors("a", json!("MIT OR GPL-3.0"), json!(REGISTRY)), [""; 0]);
        assert_eq!(errors("own", json!("Apache-2.0"), Value::Null), [""; 0]);
        for (name, licence, source, part) in [
            ("a", json!("GPL-3.0"), json!(REGISTRY), "`GPL-3.0` is not allowed"),
            ("a", Value::Null, json!(REGISTRY), "names no licence"),
            ("a", json!("MIT OR"), json!(REGISTRY), "unreadable"),
            ("ring", json!("MIT"), json!(REGISTRY), "banned"),
            ("openssl", json!("MIT"), json!(REGISTRY), "banned"),
            ("a", json!("MIT"), json!("git+https://example.com/a"), "comes from git+"),
            ("own", json!("MIT"), Value::Null, "the project's packages are under Apache-2.0"),
        ] {
            let found = errors(name, licence, source);
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
    }

    #[test]
    fn lists_that_are_not_there_are_an_error() {
        assert!(Rules::parse("[licenses]\nallow = []\n").is_err());
    }
}

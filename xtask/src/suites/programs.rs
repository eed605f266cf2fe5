//! The test programs of the workspace, as cargo builds them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::libtest;

/// One program with tests in it.
#[derive(Debug)]
pub(super) struct Program {
    /// `package:target`, as `tests:node` or `memory:lib`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The package's folder, in which cargo runs tests.
    pub(super) package: PathBuf,
}

impl Program {
    /// Names of its tests, without those that are ignored.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let list = |more: &[&str]| -> Result<Vec<String>> {
            let mut command = Command::new(&self.path);
            command.args(["--list", "--format", "terse"]).args(more).current_dir(&self.package);
            let answer = command.output().with_context(|| format!("ask {} for its tests", self.name))?;
            ensure!(answer.status.success(), "{} did not list its tests", self.name);
            Ok(libtest::listed(&String::from_utf8(answer.stdout)?))
        };
        let ignored = list(&["--ignored"])?;
        Ok(list(&[])?.into_iter().filter(|test| !ignored.contains(test)).collect())
    }
}

/// Builds everything at once, so that libraries are compiled once for tests and programs.
pub(super) fn build(root: &Path) -> Result<Vec<Program>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--locked", "--workspace", "--all-targets"]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(root).stderr(Stdio::inherit());
    let answer = command.output().context("start cargo")?;
    if !answer.status.success() {
        bail!("the tests do not compile");
    }
    let mut programs = read(&String::from_utf8(answer.stdout)?)?;
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

fn read(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("read what cargo says")?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let Some(path) = message["executable"].as_str().filter(|_| is_test) else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("a program without a package")?);
        let package = manifest.parent().context("a manifest without a folder")?;
        let folder = package.file_name().context("a package without a name")?.to_string_lossy();
        let target = &message["target"];
        let target = match (target["kind"][0].as_str(), target["name"].as_str()) {
            (Some("lib"), _) => "lib",
            (_, Some(name)) => name,
            _ => bail!("a target without a name"),
        };
        let name = format!("{folder}:{target}");
        programs.push(Program { name, path: path.into(), package: package.to_owned() });
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_what_cargo_says() {
        let artifact = |name: &str, kind: &str, test: bool, executable: Value| {
            serde_json::json!({"reason": "compiler-artifact", "manifest_path": "/tree/crates/memory/Cargo.toml",
                "target": {"name": name, "kind": [kind]}, "profile": {"test": test}, "executable": executable})
            .to_string()
        };
        let said = [
            artifact("memory", "lib", false, Value::Null),
            artifact("memory", "lib", true, "/target/memory-1".into()),
            artifact("pages", "test", true, "/target/pages-2".into()),
            artifact("measure", "bin", false, "/target/measure".into()),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = read(&said.join("\n")).unwrap();
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["memory:lib", "memory:pages"]);
        assert_eq!(programs[1].path, Path::new("/target/pages-2"));
        assert_eq!(programs[1].package, Path::new("/tree/crates/memory"));
    }
}

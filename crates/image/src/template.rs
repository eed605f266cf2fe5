//! Templates that come with PandaStack: what is installed, how large the machine is, and what runs before the snapshot so
//! that it is in memory afterwards. Each is a file in `templates/`, carried in this library.

mod definition;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use self::definition::DefinitionError;
use crate::rootfs::RootfsSpec;

/// What a template is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateSpec {
    /// How users call it.
    pub name: String,
    /// What it is, in one sentence.
    #[serde(default)]
    pub summary: String,
    /// Other names for it: what clients ask for when they are not told otherwise.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Its disk.
    pub rootfs: RootfsSpec,
    /// How many processors its machines have. Fixed when the template is baked.
    pub vcpus: u32,
    /// How much memory its machines have. Fixed when the template is baked.
    pub memory_mib: u32,
    /// Programs to run once before the snapshot is taken, each a list of arguments.
    pub warm: Vec<Vec<String>>,
    /// Kernels of code contexts that are left running in the snapshot, for the first context of each sandbox.
    #[serde(default)]
    pub kernels: Vec<WarmKernel>,
}

/// A kernel that is left running in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmKernel {
    /// Its language.
    pub language: String,
    /// Code that brings in what cells are likely to use. Names it defines are not seen by cells.
    pub preload: String,
}

/// What several templates begin with.
const PARTS: [(&str, &str); 1] = [("system", include_str!("../../../templates/parts/system.toml"))];

/// The definitions.
const DEFINITIONS: [(&str, &str); 7] = [
    ("agent", include_str!("../../../templates/agent.toml")),
    ("browser", include_str!("../../../templates/browser.toml")),
    ("claude-agent", include_str!("../../../templates/claude-agent.toml")),
    ("postgres-16", include_str!("../../../templates/postgres-16.toml")),
    ("minimal", include_str!("../../../templates/minimal.toml")),
    ("base", include_str!("../../../templates/base.toml")),
    ("code-interpreter", include_str!("../../../templates/code-interpreter.toml")),
];

static CATALOGUE: LazyLock<Vec<TemplateSpec>> = LazyLock::new(|| {
    let parsed = definition::parse_all(&PARTS, &DEFINITIONS);
    parsed.expect("a test reads every definition that is carried in this library")
});

/// All templates that come with PandaStack, by name.
pub fn catalogue() -> Vec<TemplateSpec> {
    let mut all = CATALOGUE.clone();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Finds a template that comes with PandaStack by its name or another one. What is found carries its own name.
pub fn find(name: &str) -> Option<TemplateSpec> {
    let is_meant = |spec: &&TemplateSpec| spec.name == name || spec.aliases.iter().any(|alias| alias == name);
    CATALOGUE.iter().find(is_meant).cloned()
}

fn known(name: &str) -> TemplateSpec {
    find(name).expect("it is one of the definitions above")
}

/// What is used when nothing is asked for: a shell, git, Python.
pub fn base() -> TemplateSpec {
    known("base")
}

/// For code contexts.
pub fn code_interpreter() -> TemplateSpec {
    known("code-interpreter")
}

/// A small one that is made quickly: a shell and Python without most of its library.
pub fn minimal() -> TemplateSpec {
    known("minimal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_within_bounds_and_survive_being_written_down() {
        for template in catalogue() {
            template.rootfs.check().unwrap();
            for command in &template.warm {
                assert!(command[0].starts_with('/'), "{}: {command:?}", template.name);
            }
            assert!(!template.summary.is_empty());
            let text = serde_json::to_string(&template).unwrap();
            assert_eq!(serde_json::from_str::<TemplateSpec>(&text).unwrap(), template);
        }
    }

    #[test]
    fn every_name_leads_to_one_template() {
        let mut names = Vec::new();
        for template in catalogue() {
            assert_eq!(find(&template.name), Some(template.clone()));
            for alias in &template.aliases {
                assert_eq!(find(alias).unwrap().name, template.name);
            }
            names.push(template.name);
            names.extend(template.aliases);
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(find("ubuntu-24.04").unwrap().name, "base");
        assert_eq!(find("code-interpreter-v1").unwrap().name, "code-interpreter");
        assert_eq!(find("no-such-template"), None);
    }
}

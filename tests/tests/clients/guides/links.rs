//! What documents point at: every relative link leads to a file, and to a heading where it names one; every `pandastack` command,
//! with its options, is one that the program has. Nothing is run.
//!
//! Commands are those of `docs/reference/cli.md`, which `reference.rs` compares with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::guides::clients::tree;

/// Documents outside of the folders.
const DOCUMENTS: [&str; 3] = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];
const FOLDERS: [&str; 2] = ["docs", "examples"];
/// Folders that others fill: installed packages.
const FOREIGN_FOLDERS: [&str; 2] = ["node_modules", "venv"];
/// Where the commands are.
const REFERENCE: &str = "docs/reference/cli.md";
const PROGRAM: &str = "pandastack";
/// A command of the clients that were published before, which the guide on managed agents names.
const PUBLISHED_BEFORE: &str = "cma";
/// Options of every command, which the reference says once.
const EVERYWHERE: [&str; 6] = ["--api", "--context", "--help", "--output", "--version", "-o"];
/// Words that stand before a command on its line.
const BEFORE: [&str; 9] = ["sudo", "do", "then", "until", "while", "if", "!", "$", "--"];

/// A document, taken apart.
#[derive(Debug, Default)]
struct Document {
    /// Its text without fenced blocks and without the code inside of sentences.
    prose: String,
    /// The code inside of sentences, and the lines of shell blocks.
    code: Vec<String>,
    /// What links to its headings end with.
    anchors: BTreeSet<String>,
}

impl Document {
    fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let (mut fence, mut sentences): (Option<String>, _) = (None, String::new());
        for line in text.lines() {
            if let Some(info) = line.trim_start().strip_prefix("```") {
                fence = fence.map_or_else(|| Some(info.to_owned()), |_| None);
                continue;
            }
            match &fence {
                Some(info) if info.split_whitespace().next() == Some("sh") => {
                    document.code.push(line.to_owned());
                }
                Some(_) => {}
                None => {
                    if let Some((marks, heading)) = line.split_once(' ')
                        && !marks.is_empty()
                        && marks.chars().all(|mark| mark == '#')
                    {
                        document.add_heading(heading);
                    }
                    sentences.push_str(line);
                    sentences.push('\n');
                }
            }
        }
        for (number, part) in sentences.split('`').enumerate() {
            match number % 2 {
                0 => document.prose.push_str(part),
                _ => document.code.push(part.replace('\n', " ")),
            }
        }
        document
    }

    /// The second heading of one name ends with `-1`, and so on.
    fn add_heading(&mut self, heading: &str) {
        let anchor = anchor(heading);
        let mut numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered.by_ref());
        let free = free.into_iter().find(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(free);
    }

    /// Targets of its links that are relative.
    fn links(&self) -> impl Iterator<Item = &str> {
        let targets = self.prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
    }
}

/// What a link to a heading ends with, as the forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Markdown files below a folder.
fn documents_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !FOREIGN_FOLDERS.contains(&name.as_str()) {
            documents_below(&path, found)?;
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    Ok(())
}

/// All documents by their paths.
fn documents() -> Result<BTreeMap<PathBuf, Document>> {
    let root = tree().canonicalize()?;
    let mut paths: Vec<PathBuf> = DOCUMENTS.iter().map(|name| root.join(name)).collect();
    for folder in FOLDERS {
        documents_below(&root.join(folder), &mut paths)?;
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((path, Document::parse(&text)))
    };
    paths.into_iter().map(read).collect()
}

/// Why a link leads nowhere, if it does not.
fn broken(from: &Path, target: &str, documents: &BTreeMap<PathBuf, Document>) -> Option<&'static str> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => from.to_owned(),
        file => match from.parent().unwrap_or(from).join(file).canonicalize() {
            Ok(path) => path,
            Err(_) => return Some("there is no such file"),
        },
    };
    let known = documents.get(&path).filter(|_| !anchor.is_empty())?;
    (!known.anchors.contains(anchor)).then_some("there is no such heading")
}

/// Commands by their words, each with what the reference says of it. Those that only lead to others say nothing of options.
fn commands(reference: &str) -> BTreeMap<String, String> {
    let mut commands = BTreeMap::from([(PROGRAM.to_owned(), String::new())]);
    let mut current = PROGRAM.to_owned();
    for line in reference.lines() {
        let heading = line.trim_start_matches('#').trim();
        if line.starts_with('#')
            && let Some(name) = heading.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'))
        {
            current = name.to_owned();
        }
        let about = commands.entry(current.clone()).or_default();
        about.push_str(line);
        about.push('\n');
    }
    commands
}

/// The words after the program's name wherever it stands as a command.
fn uses(code: &str) -> Vec<Vec<&str>> {
    let code = code.split(" # ").next().unwrap_or(code);
    let parts = code.split(['(', ')', '|', ';', '&', '\'', '"', '`']);
    let used = parts.filter_map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        let at = words.iter().position(|word| *word == PROGRAM)?;
        let is_command = at.checked_sub(1).is_none_or(|before| BEFORE.contains(&words[before]));
        is_command.then(|| words[at + 1..].to_vec())
    });
    used.collect()
}

/// What is wrong with a command.
fn mistake(words: &[&str], commands: &BTreeMap<String, String>) -> Option<String> {
    let mut name = PROGRAM.to_owned();
    let mut rest = words.iter();
    for word in rest.by_ref() {
        let longer = format!("{name} {word}");
        if commands.contains_key(&longer) {
            name = longer;
            continue;
        }
        let leads_on = commands.keys().any(|known| known.starts_with(&format!("{name} ")));
        // `…` stands for any of them.
        if leads_on && !word.starts_with('-') && *word != "…" {
            return Some(format!("there is no `{longer}`"));
        }
        break;
    }
    // What stands behind `--` belongs to the command in the sandbox.
    let options = words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with("--"));
    let names = options.map(|option| option.split('=').next().unwrap_or(option));
    let about = commands.get(&name)?;
    let has = |option: &str| {
        let letters = |letter: char| !letter.is_alphanumeric() && letter != '-';
        EVERYWHERE.contains(&option) || about.split(letters).any(|word| word == option)
    };
    names.into_iter().find(|option| !has(option)).map(|option| format!("`{name}` has no `{option}`"))
}

#[test]
fn links_lead_somewhere() -> Result<()> {
    let documents = documents()?;
    let mut lost = Vec::new();
    for (path, document) in &documents {
        for target in document.links() {
            if let Some(why) = broken(path, target, &documents) {
                lost.push(format!("{}: {target}: {why}", path.display()));
            }
        }
    }
    ensure!(lost.is_empty(), "links that lead nowhere:\n{}", lost.join("\n"));
    Ok(())
}

#[test]
fn commands_are_there() -> Result<()> {
    let reference = std::fs::read_to_string(tree().join(REFERENCE)).context("read the reference")?;
    let commands = commands(&reference);
    ensure!(commands.len() > 100, "the reference has {} commands", commands.len());
    let mut wrong = Vec::new();
    for (path, document) in documents()? {
        for code in &document.code {
            let uses = uses(code).into_iter().filter(|words| words.first() != Some(&PUBLISHED_BEFORE));
            let mistakes = uses.filter_map(|words| mistake(&words, &commands));
            wrong.extend(mistakes.map(|mistake| format!("{}: {code}: {mistake}", path.display())));
        }
    }
    ensure!(wrong.is_empty(), "commands that are not there:\n{}", wrong.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_taken_apart() {
        let text = "# A `b` c?\n\nSee [x `y`\nz](other.md#d-e) and `[no](link)`.\n\n```sh\n[no](link)\n```\n\n## Two\n## Two\n";
        let document = Document::parse(text);
        assert_eq!(document.links().collect::<Vec<_>>(), ["other.md#d-e"]);
        assert_eq!(document.anchors.iter().collect::<Vec<_>>(), ["a-b-c", "two", "two-1"]);
        assert!(document.code.contains(&"[no](link)".to_owned()));
    }

    #[test]
    fn mistakes_are_found() {
        let reference = "## `pandastack run`\n\n  -t, --template <T>\n\n## `pandastack sandbox`\n\n### `pandastack sandbox list`\n";
        let commands = commands(reference);
        let check = |code: &str| uses(code).iter().find_map(|words| mistake(words, &commands));
        for right in [
            "pandastack run --template base -- ls --all",
            "id=$(sudo pandastack sandbox list --output json) # pandastack nosuch",
            "systemctl stop pandastack",
            "ssh pandastack-web",
            "pandastack --version",
            "pandastack sandbox",
        ] {
            assert_eq!(check(right), None, "{right}");
        }
        for wrong in [
            "pandastack nosuch",
            "true && pandastack sandbox tree x",
            "x=\"$(pandastack run --templates base)\"",
            "claude mcp add -- pandastack nosuch",
        ] {
            assert!(check(wrong).is_some(), "{wrong}");
        }
    }
}

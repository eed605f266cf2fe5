//! Fenced blocks of a Markdown document, and the programs that they make together.
//!
//! A block in a language that is run is run. A `text` block right behind it is what it writes, where `…` stands for anything. A
//! block whose fence says `not-run` is shown only; the list of those that may be is in `main.rs`. There is no other kind.

use anyhow::{Context, Result, bail, ensure};

use crate::guides::language::Language;

/// What a fence says of a block that is not run.
const NOT_RUN: &str = "not-run";

/// A block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of its opening fence, from 1 on.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) lines: Vec<String>,
    /// What it writes, if the document says that.
    pub(crate) expected: Option<String>,
}

/// What becomes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run(Language),
    NotRun,
}

impl Block {
    /// Line of its closing fence.
    fn end(&self) -> usize {
        self.line + self.lines.len() + 1
    }
}

/// All blocks of a document, in order.
pub(crate) fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    // Whether nothing but empty lines came since the last block.
    let mut right_behind = false;
    while let Some((index, line)) = lines.next() {
        let line_number = index + 1;
        let Some(info) = line.strip_prefix("```") else {
            ensure!(!line.trim_start().starts_with("```"), "line {line_number}: fences are not indented");
            right_behind &= line.trim().is_empty();
            continue;
        };
        let mut inside = Vec::new();
        loop {
            let (_, line) = lines.next().with_context(|| format!("line {line_number}: no end"))?;
            if line == "```" {
                break;
            }
            inside.push(line.to_owned());
        }
        let mut words = info.split_whitespace();
        let (language, mark) = (words.next().unwrap_or_default(), words.next());
        ensure!(words.next().is_none(), "line {line_number}: too many words on the fence");
        if language == "text" && mark.is_none() {
            let last = blocks.last_mut().filter(|_| right_behind);
            let last = last.with_context(|| format!("line {line_number}: output of nothing"))?;
            ensure!(last.expected.is_none(), "line {line_number}: output twice");
            last.expected = Some(inside.join("\n"));
            continue;
        }
        let kind = match (Language::named(language), mark) {
            (_, Some(NOT_RUN)) => Kind::NotRun,
            (Some(language), None) => Kind::Run(language),
            _ => bail!("line {line_number}: `{info}` is neither run nor marked {NOT_RUN}"),
        };
        blocks.push(Block { line: line_number, kind, lines: inside, expected: None });
        right_behind = true;
    }
    Ok(blocks)
}

/// The program that all blocks of one language make. Each of its lines is where it is in the document, so that messages name the
/// right ones. At an opening fence it waits for its turn, at a closing one it says which block is done.
pub(crate) fn program(blocks: &[Block], language: Language) -> Option<String> {
    let mut lines = vec![language.prelude().to_owned()];
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| block.kind == Kind::Run(language)) {
        lines.resize(block.line - 1, String::new());
        lines.push(language.wait().to_owned());
        lines.extend_from_slice(&block.lines);
        lines.push(language.done(number));
        debug_assert_eq!(lines.len(), block.end());
    }
    (lines.len() > 1).then(|| lines.join("\n") + "\n")
}

/// Whether a text is as expected, where `…` stands for anything. Blanks at the ends of lines do not matter.
pub(crate) fn fits(expected: &str, said: &str) -> bool {
    let (expected, said) = (trimmed(expected), trimmed(said));
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|first| said.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found() -> Result<()> {
        let found = blocks("# A\n\n```sh\necho 1\n```\n\n```text\n1\n```\n\n```toml not-run\na = 1\n```\n")?;
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].kind), (3, Kind::Run(Language::Shell)));
        assert_eq!((found[0].end(), found[0].expected.as_deref()), (5, Some("1")));
        assert_eq!((found[1].line, found[1].kind), (11, Kind::NotRun));
        Ok(())
    }

    #[test]
    fn nothing_is_passed_over() {
        for bad in [
            "```\nx\n```\n",
            "```toml\nx\n```\n",
            "```sh skipped\nx\n```\n",
            "```text\nx\n```\n",
            "```sh\nx\n```\nwords\n```text\nx\n```\n",
            "- list\n  ```sh\n  x\n  ```\n",
            "```sh\nx\n",
        ] {
            assert!(blocks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn programs_keep_their_lines() -> Result<()> {
        let found = blocks("# A\n\n```sh\necho 1\n```\n```python\nx = 1\n```\n```sh\necho 2\n```\n")?;
        let shell = program(&found, Language::Shell).context("no shell")?;
        let lines: Vec<&str> = shell.lines().collect();
        assert_eq!((lines[3], lines[9]), ("echo 1", "echo 2"));
        assert!(lines[5..8].iter().all(|line| line.is_empty()));
        assert!(program(&found, Language::TypeScript).is_none());
        Ok(())
    }

    #[test]
    fn dots_stand_for_anything() {
        for (expected, said) in
            [("a\nb", "a \nb\n"), ("a…", "a"), ("a … c", "a b\nb c"), ("…", ""), ("…b…", "abc"), ("", "\n")]
        {
            assert!(fits(expected, said), "{expected} {said}");
        }
        for (expected, said) in [("a", "ab"), ("a…c", "ab"), ("…b", "bc"), ("a…a", "a"), ("", "x")] {
            assert!(!fits(expected, said), "{expected} {said}");
        }
    }
}

//! Licence expressions as packages write them: SPDX names with `AND`, `OR`, `WITH` and parentheses, and the old `MIT/Apache-2.0`.

use anyhow::{Context, bail};

/// Deeper nesting is not a licence anybody wrote by hand.
const DEPTH_MAX: u32 = 16;

/// Whether the terms of `expression` can be met by licences that are allowed. `X WITH Y` is allowed by that whole text.
pub(super) fn is_met(expression: &str, allowed: &dyn Fn(&str) -> bool) -> anyhow::Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, at: 0, allowed };
    let met = parser.alternatives(0)?;
    match parser.next() {
        None => Ok(met),
        Some(word) => bail!("`{word}` where it should end"),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }

    fn alternatives(&mut self, depth: u32) -> anyhow::Result<bool> {
        let mut met = self.all(depth)?;
        while self.take("OR") {
            met |= self.all(depth)?;
        }
        Ok(met)
    }

    fn all(&mut self, depth: u32) -> anyhow::Result<bool> {
        let mut met = self.one(depth)?;
        while self.take("AND") {
            met &= self.one(depth)?;
        }
        Ok(met)
    }

    fn one(&mut self, depth: u32) -> anyhow::Result<bool> {
        if depth > DEPTH_MAX {
            bail!("nested too deeply");
        }
        if self.take("(") {
            let met = self.alternatives(depth + 1)?;
            if !self.take(")") {
                bail!("a parenthesis is not closed");
            }
            return Ok(met);
        }
        match self.next().context("it ends too early")? {
            word @ ("AND" | "OR" | "WITH" | ")") => bail!("`{word}` where a licence should be"),
            name if self.take("WITH") => {
                let exception = self.next().context("it ends too early")?;
                Ok((self.allowed)(&format!("{name} WITH {exception}")))
            }
            name => Ok((self.allowed)(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        let allowed = |name: &str| ["MIT", "Apache-2.0", "Unicode-3.0"].contains(&name);
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("MIT OR GPL-3.0 AND GPL-2.0", true),
            ("(MIT OR GPL-3.0) AND GPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ] {
            assert_eq!(is_met(expression, &allowed).unwrap(), met, "{expression}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let deep = "(".repeat(100) + "MIT" + &")".repeat(100);
        for expression in ["", "OR", "MIT OR", "(MIT", "MIT)", "MIT MIT", "MIT WITH", &deep] {
            assert!(is_met(expression, &|_| true).is_err(), "{expression}");
        }
    }
}

//! Languages whose blocks are run, and how a program of each takes turns.
//!
//! A program reads a line from standard input before each block and writes a mark with the block's number after it. So the blocks of
//! all languages are run in the order of the document, while each language keeps its variables from block to block.

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Shell,
    Python,
    TypeScript,
}

impl Language {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Shell, Self::Python, Self::TypeScript];

    /// The one that fences call so.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "sh" => Some(Self::Shell),
            "python" => Some(Self::Python),
            "ts" => Some(Self::TypeScript),
            _ => None,
        }
    }

    /// Name of the file that its program is written to.
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Shell => "guide.sh",
            Self::Python => "guide.py",
            Self::TypeScript => "guide.mts",
        }
    }

    /// The first line of its program. Commands see no input but what they are given, and what they complain of belongs to what a
    /// reader sees.
    pub(crate) const fn prelude(self) -> &'static str {
        match self {
            Self::Shell => "exec 9<&0 </dev/null 2>&1; set -euo pipefail",
            Self::Python => "import sys as _sys",
            Self::TypeScript => {
                "import { createInterface as _lines } from \"node:readline\"; \
                 const _turns = _lines({ input: process.stdin })[Symbol.asyncIterator]();"
            }
        }
    }

    /// Waits for its turn.
    pub(crate) const fn wait(self) -> &'static str {
        match self {
            Self::Shell => "read -r _ <&9",
            Self::Python => "_ = _sys.stdin.readline()",
            Self::TypeScript => "await _turns.next();",
        }
    }

    /// Says that a block is done.
    pub(crate) fn done(self, number: usize) -> String {
        match self {
            Self::Shell => format!("printf '\\001%s\\n' {number}"),
            Self::Python => format!("print(\"\\x01{number}\", flush=True)"),
            Self::TypeScript => format!("process.stdout.write(\"\\x01{number}\\n\");"),
        }
    }
}

/// The mark that a program writes after a block.
pub(crate) fn mark(number: usize) -> String {
    format!("\u{1}{number}\n")
}

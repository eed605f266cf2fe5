//! The programs that run cells, carried in this binary and put into a guest when it first needs them.

use guest_link::GuestPath;
use guest_link::client::{CallError, Link};
use guest_link::message::{Failure, FileFailure, Links, Parents, WriteMode, WriteSpec};
use sha2::{Digest, Sha256};

use crate::language::Language;

/// Where kernels are in a guest. In memory, as everything below `/run`.
const KERNELS_DIRECTORY: &str = "/run/pandastack/kernels";

/// Where code goes in and large results come out. Everybody may write there and nobody removes what is another's.
pub(crate) const CELLS_DIRECTORY: &str = "/run/pandastack/cells";
const CELLS_MODE: u32 = 0o1777;

/// Hexadecimal digits of the digest in a kernel's name: enough that two versions never share one.
const DIGEST_DIGITS: usize = 16;

/// A program that runs cells.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    language: Language,
    source: &'static str,
    extension: &'static str,
}

impl Kernel {
    /// The kernel of a language.
    #[must_use]
    pub const fn of(language: Language) -> Kernel {
        let (source, extension) = match language {
            Language::Python => (include_str!("../kernels/python.py"), "py"),
            Language::JavaScript | Language::TypeScript => (include_str!("../kernels/node.cjs"), "cjs"),
            Language::Bash => (include_str!("../kernels/bash.sh"), "sh"),
        };
        Kernel { language, source, extension }
    }

    /// Its text.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// What its file is called: by its contents, so that a newer host never runs an older kernel by mistake.
    #[must_use]
    pub fn file_name(&self) -> String {
        let digest = Sha256::digest(self.source.as_bytes());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("kernel-{}.{}", &digits[..DIGEST_DIGITS], self.extension)
    }

    /// Where a template says which process of it is left running.
    pub(crate) fn warm_path(&self) -> GuestPath {
        known_path(&format!("{KERNELS_DIRECTORY}/{}.warm", self.file_name()))
    }

    /// The command that runs it: `program` is an interpreter, `file` the kernel, `cells` where code files are.
    #[must_use]
    pub fn command(&self, program: &str, file: &str, cells: &str) -> Vec<String> {
        let words: &[&str] = match self.language {
            Language::Python => &[program, file, cells],
            Language::JavaScript => &[program, "--no-warnings", file, cells, "javascript"],
            Language::TypeScript => &[program, "--no-warnings", file, cells, "typescript"],
            Language::Bash => &[program, "--noprofile", "--norc", file, cells],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Puts it into the guest unless it is there; gives its path.
    pub(crate) async fn install(&self, link: &Link) -> Result<String, CallError> {
        let text = format!("{KERNELS_DIRECTORY}/{}", self.file_name());
        let path = known_path(&text);
        match link.stat(path.clone(), Links::Keep).await {
            Ok(entry) if entry.size == self.source.len() as u64 => return Ok(text),
            Ok(_) | Err(CallError::Guest(Failure::File(FileFailure::NotFound))) => {}
            Err(error) => return Err(error),
        }
        make_cells_directory(link).await?;
        let mut file = link.write_file(WriteSpec {
            path,
            how: WriteMode::Replace,
            mode: Some(0o755),
            owner: None,
            parents: Parents::Create,
        })?;
        file.write(self.source.as_bytes()).await?;
        file.finish().await?;
        Ok(text)
    }
}

/// Makes the directory that cells go through, unless it is there.
pub(crate) async fn make_cells_directory(link: &Link) -> Result<(), CallError> {
    let cells = known_path(CELLS_DIRECTORY);
    match link.make_directory(cells.clone(), Parents::Create, Some(CELLS_MODE), None).await {
        // A mask of the guest must not take the bits away.
        Ok(()) => link.set_mode(cells, CELLS_MODE).await,
        Err(CallError::Guest(Failure::File(FileFailure::Exists))) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A path made in this crate.
pub(crate) fn known_path(text: &str) -> GuestPath {
    GuestPath::parse(text).expect("paths of this crate are absolute, short and without NUL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages;

    #[test]
    fn names_follow_contents() {
        for language in languages() {
            let kernel = Kernel::of(language);
            assert!(!kernel.source().is_empty());
            assert_eq!(kernel.file_name(), Kernel::of(language).file_name());
            assert!(kernel.command("x", "y", "z").contains(&"y".to_owned()));
        }
        assert_ne!(Kernel::of(Language::Python).file_name(), Kernel::of(Language::Bash).file_name());
    }
}

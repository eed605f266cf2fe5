//! A piece of code to run, and the id under which the kernel answers.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::limits::{RunLimits, TIMEOUT_DEFAULT};

/// Code to run in a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The code.
    pub code: String,
    /// How long it may run, counted from when the kernel begins with it. Then it is interrupted.
    pub timeout: Duration,
    /// How much it may say.
    pub limits: RunLimits,
}

impl Cell {
    /// A cell with the usual timeout and limits.
    pub fn new(code: impl Into<String>) -> Cell {
        Cell { code: code.into(), timeout: TIMEOUT_DEFAULT, limits: RunLimits::USUAL }
    }

    /// The same with another timeout.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Cell {
        Cell { timeout, ..self }
    }
}

/// Names one run of a cell. Random, so that no answer is taken for another's, whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellId(String);

impl CellId {
    /// A new one.
    pub fn random() -> io::Result<CellId> {
        let mut bytes = [0; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if filled != bytes.len() {
            return Err(io::Error::other("the kernel gave too few random bytes"));
        }
        Ok(CellId(format!("{:016x}", u64::from_ne_bytes(bytes))))
    }

    /// Sixteen hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
